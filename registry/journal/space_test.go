package journal_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
)

var (
	longSessions = flag.Int("sessions", 5, "sessions of TestLongSessionsTakeSpaceForWhatIsNew")
	mixedCalls   = flag.Int("calls", 3_000, "calls of TestMixedEndingsLeaveNothingBehind")
)

// A session of a hundred turns with a context of 100 KB that each turn adds a message to.
func TestLongSessionsTakeSpaceForWhatIsNew(t *testing.T) {
	const turns, context, message = 100, 100_000, 500
	s := start(t, t.TempDir())
	var fresh, sent int64
	for i := range *longSessions {
		session, _ := s.register(t, registry.Spec{ID: fmt.Sprint("s", i)})
		var c conversation
		c.say("system", noise(context-turns*2*message))
		for range turns {
			c.say("user", noise(message))
			sent += int64(len(c.request().Body))
			c.turn(t, session, noise(message))
		}
		fresh += int64(len(c.request().Body) + turns*message) // answers are kept beside the requests that repeat them
	}
	s.flush(t)
	memory, withLog := s.Stats().TraceBytes, s.journal.Stats().Bytes
	if memory > 2*fresh {
		t.Errorf("%d bytes in memory for %d that are new", memory, fresh)
	}
	s.stop() // which takes the log into the database
	disk := s.journal.Stats().Bytes
	t.Logf("%d sessions of %d turns, %d MB sent, %.1f MB of it new: %.1f MB in memory, %.1f MB on disk, %.1f MB with the log",
		*longSessions, turns, sent>>20, mega(fresh), mega(memory), mega(disk), mega(withLog))
	if disk > 3*fresh {
		t.Errorf("%d bytes on disk for %d that are new", disk, fresh)
	}
	again := start(t, s.dir)
	if got := again.Stats().TraceBytes; got > memory+memory/10 {
		t.Errorf("after a restart %d bytes in memory; there were %d", got, memory)
	}
}

func mega(n int64) float64 { return float64(n) / (1 << 20) }

// noise is text that has nothing in common with other text.
func noise(n int) string {
	b := make([]byte, (n+1)/2)
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rand.Uint64())
		copy(b[i:], word[:])
	}
	return hex.EncodeToString(b)[:n]
}

func TestPurgeGivesSpaceBack(t *testing.T) {
	const recorded = 3 * 100 * 40_000
	s := start(t, t.TempDir())
	var c conversation
	for i := range 3 {
		session, _ := s.register(t, registry.Spec{ID: fmt.Sprint("s", i)})
		for range 100 {
			c.messages = nil
			c.say("user", noise(20_000))
			c.turn(t, session, noise(20_000))
		}
		s.end(t, fmt.Sprint("s", i))
	}
	for i := range 2 {
		if _, err := s.End(t.Context(), fmt.Sprint("s", i), registry.EndOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(s.dir, "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	s.flush(t)
	wantSoon(t, func() bool { return size() < recorded/2 }, "the database shrinks")
	if trace := traceOf(t, s.session(t, "s2")); len(trace.Turns) != 100 {
		t.Errorf("the session that was not purged has %d turns", len(trace.Turns))
	}
	after := start(t, s.die(t))
	if _, err := after.Get("s0"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the purged session after a restart: %v", err)
	}
	if got := after.end(t, "s0"); got.Turns != 100 || got.EndReason != registry.ReasonDeleted {
		t.Errorf("its tombstone says %+v", got)
	}
}

func TestOnlyTheFirstAndLastHundredFailedCallsAreKeptOnDisk(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	for range 350 {
		call := admit(t, session)
		call.Record(registry.Request{Body: []byte(noise(100))})
		call.Fail(registry.Failure{Kind: registry.FailureRateLimit, Duration: time.Second})
		call.Close()
	}
	s.flush(t)
	s.flush(t)
	rows, err := s.journal.Trace(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows.Calls) != 200 || len(rows.Parts) > 200 || len(rows.Started) != 0 {
		t.Errorf("%d calls, %d parts and %d started ones on disk; want 200 of each and none", len(rows.Calls), len(rows.Parts), len(rows.Started))
	}
	before := traceOf(t, session)
	after := traceOf(t, start(t, s.die(t)).session(t, "a"))
	if after.FailedTotal != 350 || len(after.FailedCalls) != 200 || after.Summary.ModelTime != 350*time.Second {
		t.Errorf("after a restart %d of %d failed calls, %v", len(after.FailedCalls), after.FailedTotal, after.Summary.ModelTime)
	}
	for i, f := range after.FailedCalls {
		if !bytes.Equal(f.Request(), before.FailedCalls[i].Request()) {
			t.Fatalf("failed call %d is %q; was %q", i, f.Request(), before.FailedCalls[i].Request())
		}
	}
}

// Calls end in every way there is, sessions are ended, purged, discarded, rotated, patched and run out meanwhile.
func TestMixedEndingsLeaveNothingBehind(t *testing.T) {
	s := startWith(t, journal.Options{Dir: t.TempDir()}, registry.Options{MaxInflight: 64, TombstoneTTL: time.Millisecond, TraceRetention: time.Millisecond})
	var clock sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	clock.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	const sessions, workers = 20, 8
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for i := range *mixedCalls / workers {
				s.endSomehow(t, rand.New(rand.NewPCG(uint64(w), uint64(i))), fmt.Sprint("s", i%sessions))
			}
		})
	}
	work.Wait()
	for i := range sessions {
		_, _ = s.End(t.Context(), fmt.Sprint("s", i), registry.EndOptions{Purge: true}) // some are gone
	}
	wantSoon(t, func() bool {
		stats := s.Stats()
		return stats.Inflight == 0 && stats.Waiting == 0 && stats.TraceBytes == 0 && stats.Sessions[registry.StateEnded] == 0
	}, "nothing is left behind")
	stop()
	clock.Wait()
	s.flush(t)
	s.flush(t)
	s.stop()
	after := start(t, s.dir)
	if stats := after.Stats(); stats.TraceBytes != 0 || stats.Sessions[registry.StateActive]+stats.Sessions[registry.StateStopped] != 0 {
		t.Errorf("after a restart: %+v", stats)
	}
}

// endSomehow takes one call to one of its ends.
func (s *stack) endSomehow(t *testing.T, random *rand.Rand, id string) {
	t.Helper()
	session, err := s.Get(id)
	if err != nil {
		registrations, err := s.Register(registry.Spec{ID: id, Limits: registry.Limits{MaxTurns: new(int64(50)), MaxInflight: new(3)}})
		if errors.Is(err, registry.ErrDuplicateID) {
			return // another was faster, or it has not been forgotten yet
		}
		if err != nil {
			t.Error(err)
			return
		}
		session = registrations[0].Session
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20))*time.Millisecond)
	defer cancel()
	call, err := session.Admit(ctx, registry.CallInfo{Dialect: "chat"})
	if err != nil {
		if _, stopped := errors.AsType[*registry.StoppedError](err); stopped {
			_, _ = s.End(ctx, id, registry.EndOptions{Purge: random.IntN(2) == 0}) // another may have
		}
		return
	}
	defer call.Close()
	call.Record(registry.Request{Body: []byte(`{"messages":[` + strings.Repeat("1,", random.IntN(500)) + `1]}`)})
	switch random.IntN(12) {
	case 0:
		call.Fail(registry.Failure{Kind: registry.FailureTimeout, Received: []byte("half")})
	case 1: // given up
	case 2:
		_, _ = s.End(ctx, id, registry.EndOptions{}) // does not wait longer for the call that is in flight
	case 3:
		s.Discard(id)
	case 4:
		_, _ = session.Rotate()
	case 5:
		_ = session.Update(func(spec *registry.Spec) error { spec.Labels = map[string]string{"a": "b"}; return nil })
	case 6:
		_ = session.Stop("enough", true)
	case 7:
		call.Record(registry.Request{Body: []byte(`{"again":true}`)})
		fallthrough
	default:
		turn, err := call.Commit(registry.Response{Status: 200, Body: []byte(`{"choices":[]}`)})
		if err == nil {
			turn.SetDelivered(random.IntN(2) == 0)
		} else if !errors.Is(err, registry.ErrSealed) {
			t.Error(err)
		}
	}
}

func TestJournalFilesAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := start(t, dir)
	s.register(t, registry.Spec{})
	s.flush(t)
	wantMode(t, dir, 0o700)
	for _, name := range []string{"journal.db", "journal.db-wal", "journal.db-shm", "lock"} {
		wantMode(t, filepath.Join(dir, name), 0o600)
	}
}
