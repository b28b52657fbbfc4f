package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
)

func TestFullDiskFailsTurnsAndRegistrationsAndIsOverByItself(t *testing.T) {
	var failing []error
	s := startWith(t, journal.Options{Dir: t.TempDir(), Failing: func(err error) { failing = append(failing, err) }}, registry.Options{})
	session, _ := s.register(t, registry.Spec{ID: "a"})
	var c conversation
	c.say("user", strings.Repeat("u", 10_000))
	c.turn(t, session, "one")
	if err := s.journal.LimitPages(1); err != nil { // what it has, it keeps
		t.Fatal(err)
	}
	c.say("user", strings.Repeat("v", 100_000))
	call := admit(t, session)
	call.Record(c.request())
	_, err := call.Commit(registry.Response{Status: 200, Body: []byte("two"), Upstream: "u"})
	if !errors.Is(err, registry.ErrNotWritten) {
		t.Errorf("the turn: %v", err)
	}
	call.Close()
	if _, err := s.Register(registry.Spec{ID: "b", Metadata: []byte(`"` + strings.Repeat("m", 100_000) + `"`)}); !errors.Is(err, registry.ErrNotWritten) {
		t.Errorf("the registration: %v", err)
	}
	if _, err := s.Get("b"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the session that could not be registered: %v", err)
	}
	trace := traceOf(t, session)
	if len(trace.Turns) != 1 || len(trace.FailedCalls) != 1 {
		t.Fatalf("%d turns, %d failed calls", len(trace.Turns), len(trace.FailedCalls))
	}
	f := trace.FailedCalls[0]
	if f.Error.Kind != registry.FailureCommitFailed || string(f.Received) != "two" || f.Upstream != "u" || !bytes.Equal(f.Request(), c.request().Body) {
		t.Errorf("the failed call is %+v", f)
	}
	if stats := s.journal.Stats(); stats.Errors < 2 {
		t.Errorf("the journal says %+v", stats)
	}
	if err := s.journal.LimitPages(1 << 30); err != nil {
		t.Fatal(err)
	}
	c.turn(t, session, "three")
	s.flush(t)
	if stats := s.journal.Stats(); stats.Err != nil {
		t.Errorf("afterwards the journal says %+v", stats)
	}
	for i, err := range failing { // what is small enough may be written meanwhile
		if failed := i%2 == 0; failed != (err != nil) || len(failing)%2 != 0 {
			t.Errorf("told of %v; want failures and their ends", failing)
		}
	}
	// The failed call, which nobody waits for, is tried again until it is written.
	for {
		after := start(t, s.die(t))
		trace := traceOf(t, after.session(t, "a"))
		after.stop()
		if len(trace.Turns) != 2 || string(trace.Turns[1].Response()) != "three" {
			t.Fatalf("after a restart there are %d turns", len(trace.Turns))
		}
		if len(trace.FailedCalls) == 1 && trace.FailedCalls[0].Error.Kind == registry.FailureCommitFailed {
			break
		}
	}
}

func TestEndWorksOnAFullDiskAndIsWrittenLater(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	var c conversation
	c.say("user", "u")
	c.turn(t, session, "one")
	if err := s.journal.LimitPages(1); err != nil {
		t.Fatal(err)
	}
	// Something that needs more room keeps the disk full.
	call := admit(t, session)
	call.Record(registry.Request{Body: []byte(strings.Repeat("x", 1<<20))})
	s.end(t, "a")
	call.Close()
	if trace := traceOf(t, session); len(trace.Turns) != 1 || len(trace.FailedCalls) != 1 || trace.Summary.State != registry.StateEnded {
		t.Errorf("%d turns, %d failed calls, %s", len(trace.Turns), len(trace.FailedCalls), trace.Summary.State)
	}
	if err := s.journal.LimitPages(1 << 30); err != nil {
		t.Fatal(err)
	}
	wantSoon(t, func() bool { return s.Stats().TraceBytes == 0 }, "the trace is written, and its memory given back")
	after := start(t, s.die(t))
	if trace := traceOf(t, after.session(t, "a")); len(trace.Turns) != 1 || len(trace.FailedCalls) != 1 || trace.Summary.State != registry.StateEnded {
		t.Errorf("after a restart: %d turns, %d failed calls, %s", len(trace.Turns), len(trace.FailedCalls), trace.Summary.State)
	}
}

func TestTruncatedLogLosesItsEndAndNothingElse(t *testing.T) {
	s := start(t, t.TempDir())
	session, secret := s.register(t, registry.Spec{ID: "a"})
	var c conversation
	for i := range 30 {
		c.say("user", fmt.Sprint(i, strings.Repeat("u", 500)))
		c.turn(t, session, fmt.Sprint("answer ", i))
	}
	s.flush(t)
	dir := s.die(t)
	log := filepath.Join(dir, "journal.db-wal")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	fewest := 30
	for _, share := range []float64{0.99, 0.7, 0.4} {
		if err := os.WriteFile(log, whole[:int(share*float64(len(whole)))], 0o600); err != nil {
			t.Fatal(err)
		}
		after := start(t, dir)
		again, err := after.Lookup(secret)
		if err != nil {
			t.Fatal(err)
		}
		trace := traceOf(t, again)
		if len(trace.Turns) > fewest {
			t.Errorf("%d turns of %.0f%% of the log; there were %d of more", len(trace.Turns), share*100, fewest)
		}
		fewest = len(trace.Turns)
		for i, turn := range trace.Turns {
			if string(turn.Response()) != fmt.Sprint("answer ", i) || len(turn.Request()) == 0 {
				t.Errorf("turn %d is %q", i, turn.Response())
			}
		}
		after.stop()
		for _, name := range []string{"journal.db-wal", "journal.db-shm"} {
			_ = os.Remove(filepath.Join(dir, name))
		}
		dir = s.die(t)
		log = filepath.Join(dir, "journal.db-wal")
	}
	if fewest == 30 || fewest == 0 {
		t.Errorf("%d turns are left of the shortest log; want some", fewest)
	}
}

func TestStateDirsThatCannotBeUsedAreRefusedByName(t *testing.T) {
	open := func(dir string) error {
		j, err := journal.Open(t.Context(), journal.Options{Dir: dir})
		if err == nil {
			t.Errorf("%s was opened", dir)
			return j.Close()
		}
		return err
	}
	used := start(t, t.TempDir())
	err := open(used.dir)
	if locked, ok := errors.AsType[*journal.LockedError](err); !ok || locked.PID != fmt.Sprint(os.Getpid()) || !strings.Contains(err.Error(), used.dir) {
		t.Errorf("one in use: %v", err)
	}

	garbage := t.TempDir()
	if err := os.WriteFile(filepath.Join(garbage, "journal.db"), bytes.Repeat([]byte("garbage "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(garbage); err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Errorf("garbage: %v", err)
	}

	newer := start(t, t.TempDir())
	newer.stop()
	sqlite(t, newer.dir, fmt.Sprintf("PRAGMA user_version = %d", journal.Schema()+1))
	err = open(newer.dir)
	if schema, ok := errors.AsType[*journal.NewerError](err); !ok || schema.Schema != journal.Schema()+1 {
		t.Errorf("a newer schema: %v", err)
	}
	if _, err := journal.OpenReader(t.Context(), newer.dir); err == nil {
		t.Error("a newer schema was read")
	}

	other := t.TempDir()
	sqlite(t, other, "CREATE TABLE t (x)")
	if err := open(other); err == nil || !strings.Contains(err.Error(), "not written by muxproxy") {
		t.Errorf("another program's: %v", err)
	}

	if err := open(filepath.Join(garbage, "journal.db", "dir")); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("below a file: %v", err)
	}
	if _, err := journal.OpenReader(t.Context(), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading nothing: %v", err)
	}
}

// TestReadOnlyStateDirIsRefused needs a process that may not write everywhere.
func TestReadOnlyStateDirIsRefused(t *testing.T) {
	if dir := os.Getenv("JOURNAL_TEST_READ_ONLY"); dir != "" { //nolint:forbidigo // of the process below
		_, err := journal.Open(t.Context(), journal.Options{Dir: dir})
		fmt.Println("opened:", err)
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	self := filepath.Join(filepath.Dir(dir), "test")
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(self, binary, 0o755), os.Mkdir(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	for at := filepath.Dir(dir); at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, "-test.run=^TestReadOnlyStateDirIsRefused$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "JOURNAL_TEST_READ_ONLY="+dir) //nolint:forbidigo // passed on
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("opened: open journal: open "+dir+"/lock: permission denied")) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestNetworkFileSystemsAreKnownByName(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0xff534d42: "smb", 0xfe534d42: "smb", 0x517b: "smb", 0x01021997: "9p", 0x65735546: "fuse",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "",
	} {
		if got := journal.NetworkFileSystemOf(magic); got != want {
			t.Errorf("%#x is %q; want %q", magic, got, want)
		}
	}
}
