package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

func TestSessionsNeverSeeEachOthersTurns(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxInflight: 8})
	var all sync.WaitGroup
	for i := range 2 {
		s, secret := register(t, r, registry.Spec{ID: fmt.Sprint("s", i)})
		mark := fmt.Sprintf("only-in-%d", i)
		for worker := range 8 {
			all.Go(func() {
				for turn := range 100 {
					found, err := r.Lookup(secret)
					if err != nil || found != s {
						t.Errorf("Lookup = %v, %v", found, err)
						return
					}
					call := admit(t, found)
					c := &conversation{}
					c.say("user", fmt.Sprint(mark, worker, turn, strings.Repeat("x", 200)))
					call.Record(c.request())
					commit(t, call, registry.Response{
						Body: []byte(mark), Usage: &registry.Usage{InputTokens: 1, OutputTokens: 1},
						Choices: []registry.Choice{{Continuation: 1}},
					})
				}
			})
		}
		all.Go(func() {
			for range 50 {
				for _, turn := range traceOf(t, s).Turns {
					if string(turn.Response()) != mark || !strings.Contains(string(turn.Request()), mark) {
						t.Errorf("a turn of another session: %s", turn.Response())
					}
				}
				r.Stats()
			}
		})
	}
	all.Wait()
	for _, s := range r.Select(nil) {
		if got := s.Summary(); got.Turns != 800 || got.Usage.OutputTokens != 800 || got.Inflight != 0 {
			t.Errorf("summary is %+v; want 800 turns", got)
		}
	}
}

func TestNothingIsLeftAfterTenThousandMixedEndings(t *testing.T) {
	const calls, turns = 10_000, 1_000_000
	r := newRegistry(t, registry.Options{MaxInflight: 6, AdmitTimeout: 2 * time.Millisecond})
	s, _ := register(t, r, registry.Spec{ID: "a", Limits: registry.Limits{MaxTurns: new(int64(turns)), MaxInflight: new(4)}})
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range calls / 16 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3_000))*time.Microsecond)
				if call, err := s.Admit(ctx, registry.CallInfo{}); err == nil {
					endSomehow(call, random)
				}
				cancel()
			}
		})
	}
	all.Wait()
	summary := s.Summary()
	if stats := r.Stats(); stats.Inflight != 0 || stats.Waiting != 0 || summary.Inflight != 0 {
		t.Errorf("%d in flight, %d wait, %d in flight in the session", stats.Inflight, stats.Waiting, summary.Inflight)
	}
	limits := func(spec *registry.Spec) error {
		spec.Limits.MaxTurns = new(int64(summary.Turns + 3))
		return nil
	}
	if err := s.Update(limits); err != nil {
		t.Fatal(err)
	}
	held := []*registry.Call{admit(t, s), admit(t, s), admit(t, s)}
	_, err := s.Admit(t.Context(), registry.CallInfo{})
	wantStopped(t, err, registry.LimitTurns)
	for _, call := range held {
		call.Close()
	}
	if _, err := r.End(t.Context(), "a", registry.EndOptions{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats().TraceBytes; got != 0 {
		t.Errorf("%d trace bytes are left", got)
	}
}

func endSomehow(call *registry.Call, random *rand.Rand) {
	defer call.Close()
	if random.IntN(2) == 0 {
		call.Record(registry.Request{Body: []byte(`{"messages":[]}`)})
	}
	switch random.IntN(5) {
	case 0:
		_, _ = call.Commit(registry.Response{Body: []byte("{}")})
	case 1:
		call.Fail(registry.Failure{Kind: registry.FailureConnection})
		call.Fail(registry.Failure{Kind: registry.FailureTimeout})
	case 2:
		call.Close()
	case 3:
		<-call.Context().Done()
	}
}

func TestEndingsRacedWithCallsLeaveNothing(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxSessions: 50})
	for round := range 30 {
		id := fmt.Sprint("s", round)
		s, secret := register(t, r, registry.Spec{ID: id, Limits: registry.Limits{MaxInflight: new(2)}})
		var all sync.WaitGroup
		for worker := range 6 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					call, err := s.Admit(ctx, registry.CallInfo{})
					if err == nil {
						endSomehow(call, random)
					}
					cancel()
					if _, err := r.Lookup(secret); err != nil {
						return
					}
				}
			})
		}
		all.Go(func() {
			r.Stats()
			if _, _, err := r.List(registry.Filter{Labels: map[string]string{"k": "v"}}); err != nil {
				t.Error(err)
			}
			if err := s.Update(func(*registry.Spec) error { return nil }); err != nil {
				wantEnded(t, err, registry.ReasonDeleted)
			}
		})
		for range 2 {
			all.Go(func() {
				if _, err := s.Rotate(); err != nil {
					wantEnded(t, err, registry.ReasonDeleted)
				}
				_ = s.Stop("late", true)
				if _, err := r.End(t.Context(), id, registry.EndOptions{Purge: true}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if stats := r.Stats(); stats.Inflight != 0 || stats.Waiting != 0 || stats.TraceBytes != 0 || stats.Ended[registry.ReasonDeleted] != 30 {
		t.Errorf("stats are %+v", stats)
	}
}
