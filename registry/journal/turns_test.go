package journal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func TestEachTurnOfAnEndedSessionIsThatOfItsTrace(t *testing.T) {
	s := start(t, t.TempDir())
	other, _ := s.register(t, registry.Spec{ID: "other"})
	var apart conversation
	apart.say("user", "apart")
	apart.turn(t, other, "apart")
	session, _ := s.register(t, registry.Spec{ID: "a"})
	agents := make([]conversation, 3) // that take turns
	var ids strings.Builder
	ids.WriteString("[1")
	for i := range 60 {
		c := &agents[i%len(agents)]
		c.say("user", noise(200))
		c.turn(t, session, noise(200))
		failed := admit(t, session)
		failed.Record(c.request())
		failed.Fail(registry.Failure{Kind: registry.FailureTimeout, Received: []byte("half")})
		failed.Close()
		if i%7 == 0 {
			ids.WriteString(strings.Repeat(fmt.Sprintf(",%d", 1000+i), 40))
			call := admit(t, session)
			call.Record(registry.Request{Body: []byte(`{"prompt":"p"}`)})
			_, err := call.Commit(registry.Response{Status: 200, Body: []byte(`{"ids":` + ids.String() + `]}`), Shared: []byte(ids.String() + "]")})
			if err != nil {
				t.Fatal(err)
			}
			call.Close()
		}
	}
	live := traceOf(t, session)
	s.end(t, "a")
	for _, at := range []*stack{s, start(t, s.die(t))} {
		session := at.session(t, "a")
		for i, want := range traceOf(t, session).Turns {
			got, err := session.Turn(i)
			if err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			for _, other := range []*registry.Turn{want, live.Turns[i]} {
				if got.Index != i || (got.Parent == nil) != (other.Parent == nil) || got.Parent != nil && *got.Parent != *other.Parent ||
					string(got.Request()) != string(other.Request()) || string(got.Response()) != string(other.Response()) ||
					got.RequestID != other.RequestID || (got.Delivered() == nil) != (other.Delivered() == nil) {
					t.Fatalf("turn %d is %+v; want %+v", i, got, other)
				}
			}
		}
		for _, index := range []int{-1, len(live.Turns), 1 << 30} {
			if _, err := session.Turn(index); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("turn %d: got %v; want that there is none", index, err)
			}
		}
		if got := at.Stats().TraceBytes; got > 2000 { // of the session that is live
			t.Errorf("reading keeps %d bytes of memory", got)
		}
		if _, err := at.End(t.Context(), "a", registry.EndOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
		at.flush(t)
		if _, err := session.Turn(0); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("a turn of a session that was purged: got %v; want that there is none", err)
		}
	}
}

func TestTurnOfAnEndedSessionIsReadWithoutTheOthers(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	var c conversation
	const turns = 200
	for range turns {
		c.say("user", noise(100))
		c.turn(t, session, noise(100))
	}
	s.end(t, "a")
	allocations := func(index int) float64 {
		return testing.AllocsPerRun(5, func() {
			if _, err := session.Turn(index); err != nil {
				t.Error(err)
			}
		})
	}
	whole := testing.AllocsPerRun(5, func() { traceOf(t, session) })
	if first, last := allocations(0), allocations(turns-1); first > whole/20 || last > whole/2 {
		t.Errorf("the first turn takes %.0f allocations and the last %.0f, the whole trace %.0f", first, last, whole)
	}
}
