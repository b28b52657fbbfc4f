package pacing_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

// TestMain is also the main of the processes that the tests start: this binary
// with "process", the rate, a number of turns and the folder as arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "process" {
		if err := child(strings.Join(os.Args[2:], " ")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// child takes turns, all at once, and prints when each was, in nanoseconds. The parent ends it
// by closing its standard input, or kills it.
func child(spec string) error {
	var rate float64
	var turns int
	var dir string
	if _, err := fmt.Sscanf(spec, "%g %d %s", &rate, &turns, &dir); err != nil {
		return err
	}
	p, err := pacing.New(ctx(), pacing.Options{Dir: dir, Key: "token", Rate: rate})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	took := make(chan error, turns)
	for range turns {
		go func() {
			_, err := p.Wait(ctx())
			fmt.Println(time.Now().UnixNano())
			took <- err
		}()
	}
	for range turns {
		if err := <-took; err != nil {
			return err
		}
	}
	return nil
}

// process is a child.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	begin func()
}

// spawn starts a child that waits for begin.
func spawn(t *testing.T, dir string, rate float64, turns int) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "process", fmt.Sprint(rate), fmt.Sprint(turns), dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &process{cmd: cmd, lines: bufio.NewScanner(out), begin: func() { _, _ = in.Write([]byte("\n")) }}
	if !p.lines.Scan() || p.lines.Text() != "ready" {
		t.Fatalf("child: got %q; want ready", p.lines.Text())
	}
	return p
}

// turn is when the child's next turn was.
func (p *process) turn(t *testing.T) time.Time {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatal("child: no more turns")
	}
	n, err := strconv.ParseInt(p.lines.Text(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, n)
}
