package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/command"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// TestMain is also the main of the daemon that the tests start and kill: this
// binary with a folder and a script.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "daemon" {
		daemon(os.Args[2], os.Args[3])
		return
	}
	goleak.VerifyTestMain(m)
}

// daemon runs the script as a tunnel, with a ledger in the folder, prints the
// URL, and stays.
func daemon(dir, script string) {
	l, err := ledger.Open(dir)
	if err != nil {
		panic(err)
	}
	o := shell(script)
	o.Ledger = l
	d, err := command.New(o)
	if err != nil {
		panic(err)
	}
	opened, err := d.Open(context.Background(), local)
	if err != nil {
		panic(err)
	}
	fmt.Println(opened.URL())
	<-opened.Done()
}

var local = tunnel.Local{Server: "srv-1", Addr: "127.0.0.1:40123"}

// shell are options for a script of the shell, which gets the server's address
// as $0 and says its own process id with a URL: http://up.example/$$.
func shell(script string, variables ...string) command.Options {
	return command.Options{
		Args:      []string{"sh", "-c", script, "{addr}"},
		Env:       append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, variables...),
		URL:       regexp.MustCompile(`http://\S+`),
		StopGrace: 5 * time.Second,
	}
}

func driver(t *testing.T, o command.Options) *command.Driver {
	t.Helper()
	d, err := command.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a tunnel that must come up, and closes it with the test.
func open(t *testing.T, o command.Options) tunnel.Tunnel {
	t.Helper()
	opened, err := driver(t, o).Open(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// openError is the error of a tunnel that must not come up.
func openError(t *testing.T, o command.Options) error {
	t.Helper()
	opened, err := driver(t, o).Open(t.Context(), local)
	if err == nil {
		_ = opened.Close(context.Background())
		t.Fatalf("got a tunnel, %s; want an error", opened.URL())
	}
	return err
}

// group is the process group whose number is the last element of the URL.
func group(t *testing.T, url string) int {
	t.Helper()
	pid, err := strconv.Atoi(url[strings.LastIndexByte(url, '/')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// running tells whether anybody in the group runs; the dead whom nobody has
// waited for do not.
func running(t *testing.T, pgid int) bool {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		text, _ := os.ReadFile(path) // one that has gone is in no group
		_, afterName, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(afterName); len(f) > 2 && f[2] == strconv.Itoa(pgid) && f[0] != "Z" {
			return true
		}
	}
	return false
}

// eventually waits for what other processes do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// within fails the test if the channel is not closed in time.
func within(t *testing.T, limit time.Duration, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("not within %s", limit)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}
