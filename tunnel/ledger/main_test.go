package ledger_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// TestMain is also the main of the processes that the tests start and kill:
// this binary with a role as its first argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "process" {
		process(os.Args[2], os.Args[3:])
		return
	}
	goleak.VerifyTestMain(m)
}

// process records the ids in the folder, or takes all orphans, says so, and
// stays until its standard input ends.
func process(dir string, arguments []string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			panic(err)
		}
	}
	l, err := ledger.Open(dir)
	fail(err)
	for _, id := range arguments {
		if id != "take" {
			fail(l.Record("thing", id, json.RawMessage(`{"of":"`+id+`"}`)))
			continue
		}
		orphans, err := l.Orphans("thing")
		fail(err)
		for _, o := range orphans {
			fmt.Println("took", o.ID)
			fail(o.Done())
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// other is a process of this binary.
type other struct {
	command *exec.Cmd
	took    []string // orphans that it took before it was ready
}

func start(t *testing.T, dir string, arguments ...string) *other {
	t.Helper()
	o := &other{command: exec.CommandContext(t.Context(), os.Args[0], append([]string{"process", dir}, arguments...)...)}
	if _, err := o.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.command.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			return o
		}
		o.took = append(o.took, strings.TrimPrefix(lines.Text(), "took "))
	}
	t.Fatalf("process was never ready: %q", o.took)
	return nil
}

// kill ends the process as nothing can be prepared for.
func (o *other) kill(t *testing.T) {
	t.Helper()
	if err := o.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = o.command.Wait()
}
