package pacing_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

func ctx() context.Context { return context.Background() }

// shared returns a pacer of that folder.
func shared(t *testing.T, dir string, rate float64, longest time.Duration) *pacing.Pacer {
	t.Helper()
	p, err := pacing.New(t.Context(), pacing.Options{Dir: dir, Key: "token", Rate: rate, MaxWait: longest})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessesTogetherKeepTheRateInEveryWindow(t *testing.T) {
	const processes, turns, rate = 4, 8, 20.0
	dir := t.TempDir()
	all := make([]*process, processes)
	for i := range all {
		all[i] = spawn(t, dir, rate, turns)
	}
	for _, p := range all {
		p.begin()
	}
	var mu sync.Mutex
	var times []time.Time
	var readers sync.WaitGroup
	for _, p := range all {
		readers.Go(func() {
			for range turns {
				at := p.turn(t)
				mu.Lock()
				times = append(times, at)
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	slices.SortFunc(times, time.Time.Compare)

	interval := time.Second / rate
	for i := range times {
		for j := i + 1; j < len(times); j++ {
			// n turns span n-1 intervals. A process may look at its clock some time
			// after its turn, on a busy machine by more than one interval.
			if span, least := times[j].Sub(times[i]), time.Duration(j-i)*interval; span < least-2*interval {
				t.Fatalf("%d turns within %s; want at least %s", j-i+1, span, least)
			}
		}
	}
	if span := times[len(times)-1].Sub(times[0]); span > 4*processes*turns*interval {
		t.Errorf("%d turns took %s; want about %s", len(times), span, processes*turns*interval)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "pace-*.*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheBacklogOfAnotherProcessCountsUntilItIsKilled(t *testing.T) {
	dir := t.TempDir()
	other := spawn(t, dir, 1, 60)
	other.begin()
	other.turn(t) // all of them are in line by the time of the second
	other.turn(t)

	p := shared(t, dir, 1, 10*time.Second)
	start := time.Now()
	if _, err := p.Wait(ctx()); !errors.Is(err, pacing.ErrBacklog) || time.Since(start) > time.Second {
		t.Fatalf("got %v after %s; want ErrBacklog at once", err, time.Since(start))
	}
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.cmd.Wait()
	if waited, err := p.Wait(ctx()); err != nil || waited > 2*time.Second {
		t.Errorf("after its death: got %v after %s; want a turn", err, waited)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "pace-*.*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAStoppedProcessThatWaitsHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	other := spawn(t, dir, 20, 100)
	other.begin()
	other.turn(t)
	for stopped := false; !stopped; {
		if err := other.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus // that it has stopped, which takes a moment
		if _, err := syscall.Wait4(other.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("stop: got %v, status %d", err, status)
		}
		if stopped = unlocked(t, cursorOf(t, dir)); !stopped {
			_ = other.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	p := shared(t, dir, 20, time.Minute)
	for range 3 {
		if waited, err := p.Wait(ctx()); err != nil || waited > 5*time.Second {
			t.Errorf("got %v after %s; want a turn", err, waited)
		}
	}
}

// unlocked says that no process holds the lock of the file.
func unlocked(t *testing.T, path string) bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

func TestAPauseHoldsOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	p := shared(t, dir, 100, time.Minute)
	other := spawn(t, dir, 100, 1)
	until := time.Now().Add(500 * time.Millisecond)
	if err := p.Pause(ctx(), until); err != nil {
		t.Fatal(err)
	}
	other.begin()
	if at := other.turn(t); at.Before(until) {
		t.Errorf("got a turn %s before the pause was over", until.Sub(at))
	}
}

func TestAFolderThatCannotBeUsedIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pacing.New(t.Context(), pacing.Options{Dir: filepath.Join(file, "under"), Rate: 1}); err == nil {
		t.Error("New under a file: got nil; want an error")
	}
	dir := filepath.Join(t.TempDir(), "pacing")
	p := shared(t, dir, 100, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx()); err == nil {
		t.Error("Wait without the folder: got nil; want an error")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx()); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
