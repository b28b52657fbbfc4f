package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// fill registers a session and gives it a turn of about ten thousand bytes.
func fill(tb testing.TB, r *registry.Registry, id string) *registry.Session {
	tb.Helper()
	s, _ := register(tb, r, registry.Spec{ID: id})
	commit(tb, admit(tb, s), registry.Response{Body: []byte(strings.Repeat("r", 10_000))})
	return s
}

func end(tb testing.TB, r *registry.Registry, id string) {
	tb.Helper()
	if _, err := r.End(tb.Context(), id, registry.EndOptions{}); err != nil {
		tb.Fatal(err)
	}
}

func TestTracesThatWereReadAreDroppedFirstThenTheOldestEnded(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxTraceBytes: 45_000})
	sessions := make(map[string]*registry.Session)
	for _, id := range []string{"a", "b", "c", "d"} {
		sessions[id] = fill(t, r, id)
	}
	for _, id := range []string{"b", "a", "d", "c"} {
		end(t, r, id)
	}
	traceOf(t, sessions["c"])
	traceOf(t, sessions["d"])

	for i, gone := range []string{"d", "c", "b", "a"} {
		fill(t, r, fmt.Sprint("live", i))
		if _, err := r.Get(gone); err == nil {
			t.Fatalf("%s is still there; want it to be the next to go", gone)
		}
		if got := r.Stats(); got.EvictedTraces != int64(i+1) || got.TraceBytes > 45_000 {
			t.Fatalf("%d traces evicted, %d bytes; want %d", got.EvictedTraces, got.TraceBytes, i+1)
		}
	}
}

func TestFullMemoryRefusesSessionsAndNeverCutsALiveTrace(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxTraceBytes: 25_000})
	live := fill(t, r, "live")
	fill(t, r, "other")
	for range 5 {
		commit(t, admit(t, live), registry.Response{Body: make([]byte, 10_000)})
	}
	_, err := r.Register(registry.Spec{})
	wantIs(t, err, registry.ErrTraceMemoryFull)
	if got := live.Summary().Turns; got != 6 || len(traceOf(t, live).Turns) != 6 {
		t.Errorf("%d turns; want 6", got)
	}
	end(t, r, "live")
	register(t, r, registry.Spec{})
	_, err = r.Get("live")
	wantIs(t, err, registry.ErrNotFound)
}

func TestTraceThatGrewAfterItWasReadCountsAsUnread(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxTraceBytes: 35_000})
	grown := fill(t, r, "grown")
	traceOf(t, grown)
	take(t, grown, 1, 1)
	read := fill(t, r, "read")
	traceOf(t, read)
	end(t, r, "grown")
	end(t, r, "read")
	fill(t, r, "live1")
	fill(t, r, "live2")
	if _, err := r.Get("grown"); err != nil {
		t.Errorf("the trace that was not read to its end is gone: %v", err)
	}
	_, err := r.Get("read")
	wantIs(t, err, registry.ErrNotFound)
}
