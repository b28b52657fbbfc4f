package command_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

func TestTheEndOfTheProgramIsTheEndOfTheTunnel(t *testing.T) {
	up := open(t, shell("echo going on; echo http://up.example/$$; exec sleep 1000"))
	if up.State() != tunnel.Up || up.Resume() != "" || up.Err() != nil {
		t.Errorf("got %s, resume %q, error %v; want up", up.State(), up.Resume(), up.Err())
	}
	kill(t, group(t, up.URL()))
	within(t, time.Second, up.Done())
	lost, ok := errors.AsType[*tunnel.LostError](up.Err())
	if !ok || !strings.Contains(lost.Reason, "killed") || !strings.Contains(lost.Reason, "going on") {
		t.Errorf("got %v; want how it ended and what it printed", up.Err())
	}
}

func TestCloseEndsTheWholeGroupGently(t *testing.T) {
	told := filepath.Join(t.TempDir(), "told")
	// The shell does not wait for its child, which takes its time to say goodbye.
	child := `trap 'sleep 0.2; echo bye >` + told + `; exit' TERM; while :; do sleep 0.05; done`
	up := open(t, shell(`sh -c "$CHILD" & sleep 1000 & sleep 0.1; echo http://up.example/$$; wait`, "CHILD="+child))
	for range 2 {
		if err := up.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	within(t, time.Second, up.Done())
	if !errors.Is(up.Err(), tunnel.ErrClosed) {
		t.Errorf("got %v; want ErrClosed", up.Err())
	}
	if read(t, told) != "bye" {
		t.Error("a descendant was killed before its grace was over")
	}
	if running(t, group(t, up.URL())) {
		t.Error("part of the group still runs")
	}
}

func TestAProgramThatIgnoresSIGTERMIsKilled(t *testing.T) {
	const script = `trap "" TERM; sleep 1000 & echo http://up.example/$$; while :; do wait; done`
	t.Run("after the grace", func(t *testing.T) {
		o := shell(script)
		o.StopGrace = 100 * time.Millisecond
		up := open(t, o)
		if err := up.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if running(t, group(t, up.URL())) {
			t.Error("part of the group still runs")
		}
	})
	t.Run("when the caller has no time", func(t *testing.T) {
		o := shell(script)
		o.StopGrace = time.Hour
		up := open(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := up.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if running(t, group(t, up.URL())) {
			t.Error("part of the group still runs")
		}
	})
}

func TestAStoppedProgramCanBeClosed(t *testing.T) {
	o := shell(`echo http://up.example/$$; exec sleep 1000`)
	o.StopGrace = 50 * time.Millisecond
	up := open(t, o)
	if err := syscall.Kill(-group(t, up.URL()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOutputIsReadForEver(t *testing.T) {
	// Each pipe gets many times what it holds, before the URL and after it.
	flood := `yes 0123456789012345678901234567890123456789 | head -c 1000000`
	after := filepath.Join(t.TempDir(), "after")
	script := fmt.Sprintf(`%[1]s; %[1]s >&2; head -c 300000 /dev/zero | tr '\0' x
		echo; echo http://up.example/$$; %[1]s; %[1]s >&2; echo done >%[2]s; exec sleep 1000`, flood, after)
	up := open(t, shell(script))
	eventually(t, "the program goes on", func() bool { return read(t, after) == "done" })
	if up.Err() != nil {
		t.Errorf("got %v; want a tunnel that is up", up.Err())
	}
}

func TestGarbageDoesNotHideTheURL(t *testing.T) {
	up := open(t, shell(`head -c 200000 /dev/urandom; head -c 200000 /dev/urandom >&2; echo; echo http://up.example/$$; exec sleep 1000`))
	if !strings.HasPrefix(up.URL(), "http://up.example/") {
		t.Errorf("got %q", up.URL())
	}
}

func TestDescendantsThatHoldThePipesDelayNothing(t *testing.T) {
	t.Run("in the group", func(t *testing.T) {
		up := open(t, shell(`sleep 1000 & echo http://up.example/$$; wait`))
		leader := group(t, up.URL())
		kill(t, leader)
		within(t, time.Second, up.Done())
		if err := up.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if running(t, leader) {
			t.Error("the descendant still runs")
		}
	})
	t.Run("outside of the group", func(t *testing.T) {
		o := shell(`setsid sh -c 'echo $$ >'"$FILE"'; exec sleep 1000' & echo http://up.example/$$; wait`)
		file := filepath.Join(t.TempDir(), "pid")
		o.Env = append(o.Env, "FILE="+file)
		up := open(t, o)
		eventually(t, "descendant", func() bool { return read(t, file) != "" })
		descendant := group(t, "/"+read(t, file))
		t.Cleanup(func() { kill(t, descendant) })
		if err := up.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !running(t, descendant) {
			t.Error("a process of another group was killed")
		}
	})
}

func TestTheProgramOutlivesTheThreadThatOpenedIt(t *testing.T) {
	opened := make(chan tunnel.Tunnel)
	d := driver(t, shell("echo http://up.example/$$; exec sleep 1000"))
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		up, err := d.Open(context.Background(), local)
		if err != nil {
			t.Error(err)
		}
		opened <- up
	}()
	up := <-opened
	select {
	case <-up.Done():
		t.Error(up.Err())
	case <-time.After(200 * time.Millisecond):
	}
	if err := up.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
