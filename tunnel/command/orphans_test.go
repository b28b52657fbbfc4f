package command_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// killed runs the script in a daemon, kills that, and returns the number of the
// script's group.
func killed(t *testing.T, dir, script string) int {
	t.Helper()
	d := exec.CommandContext(t.Context(), os.Args[0], "daemon", dir, script)
	out, err := d.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	kill(t, d.Process.Pid)
	_ = d.Wait()
	return group(t, strings.TrimSpace(url))
}

func ledgerIn(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestAKilledDaemonTakesItsProgramWithIt(t *testing.T) {
	pgid := killed(t, t.TempDir(), "echo http://up.example/$$; exec sleep 1000")
	eventually(t, "end of the program", func() bool { return !running(t, pgid) })
}

func TestWhatAKilledDaemonLeftRunningIsCleanedUp(t *testing.T) {
	dir := t.TempDir()
	pgid := killed(t, dir, "sleep 1000 & sleep 1000 & echo http://up.example/$$; wait")
	eventually(t, "end of the leader", func() bool { return syscall.Kill(pgid, 0) != nil })
	if !running(t, pgid) {
		t.Fatal("nothing was left; want descendants, or this test shows nothing")
	}
	l := ledgerIn(t, dir)
	for range 2 {
		lookOnce(t, l)
	}
	eventually(t, "end of the descendants", func() bool { return !running(t, pgid) })
}

// lookOnce runs a driver for as long as it takes it to look for orphans, which
// must go well.
func lookOnce(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	var warnings bytes.Buffer
	o := shell("")
	o.Ledger, o.Logger = l, zerolog.New(&warnings).Level(zerolog.WarnLevel)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := driver(t, o).Run(ctx); err != nil || warnings.Len() > 0 {
		t.Fatalf("got %v, and on the log %s; want neither", err, &warnings)
	}
}

func TestWhatAnotherDaemonLooksAtIsCleanedUpAtTheNextLook(t *testing.T) {
	dir := t.TempDir()
	pgid := killed(t, dir, "sleep 1000 & echo http://up.example/$$; wait")
	eventually(t, "end of the leader", func() bool { return syscall.Kill(pgid, 0) != nil })
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("got %q, %v; want the record of the killed one", names, err)
	}
	record, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(record.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	o := shell("")
	o.Ledger = ledgerIn(t, dir)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- driver(t, o).Run(ctx) }()
		synctest.Wait()
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || !running(t, pgid) {
			t.Errorf("got %q, %v; want the first look to find it locked, or this test shows nothing", left, err)
		}
		if err := record.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(ledger.LookAgain)
		synctest.Wait()
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
			t.Errorf("got %q, %v; want nothing on record", left, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "end of the descendants", func() bool { return !running(t, pgid) })
}

// bystander is a group that is none of ours, with a leader or without.
func bystander(t *testing.T, script string) int {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pgid := c.Process.Pid
	if !strings.Contains(script, "exec") {
		_ = c.Wait()
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
		_ = c.Wait()
	})
	return pgid
}

func TestAnotherGroupWithTheSameNumberIsLeftAlone(t *testing.T) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	led, leaderless := bystander(t, "exec sleep 1000"), bystander(t, "sleep 1000 & sleep 1000 &")
	dir := t.TempDir()
	dead := ledgerIn(t, dir)
	for _, pgid := range []int{led, leaderless} {
		data := fmt.Sprintf(`{"pgid":%d,"started":1,"boot":%q,"mark":"of one that ran before"}`, pgid, strings.TrimSpace(string(boot)))
		if err := dead.Record("process-group", strconv.Itoa(pgid), json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
	}
	for id, data := range map[string]string{"other boot": fmt.Sprintf(`{"pgid":%d,"boot":"x"}`, led), "garbage": `[]`, "all": `{"pgid":-1}`, "none": `{}`} {
		if err := dead.Record("process-group", id, json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
	}
	_ = dead.Close()
	l := ledgerIn(t, dir)
	lookOnce(t, l)
	if !running(t, led) || !running(t, leaderless) {
		t.Error("a group that is not ours was killed")
	}
	if left, err := l.Orphans("process-group"); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v; want nothing on record", left, err)
	}
}

func TestAProgramThatHasEndedIsNotOnRecord(t *testing.T) {
	dir := t.TempDir()
	o := shell("echo http://up.example/$$; exec sleep 1000")
	o.Ledger = ledgerIn(t, dir)
	up := open(t, o)
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("got %v; want one file while it runs", names)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("got %v; want none", names)
	}
}

func TestAProgramThatCannotBeRecordedDoesNotRun(t *testing.T) {
	o := shell("echo http://up.example/$$; exec sleep 1000")
	o.Ledger = ledgerIn(t, t.TempDir())
	_ = o.Ledger.Close()
	if err := openError(t, o); !strings.Contains(err.Error(), "record process") {
		t.Errorf("got %v", err)
	}
}
