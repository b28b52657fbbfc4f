package registry_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

func TestLeaseRunsOutUnlessItIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{Lease: time.Minute})
		s, secret := register(t, r, registry.Spec{ID: "a"})
		longer, _ := register(t, r, registry.Spec{Lease: time.Hour})
		for range 3 {
			time.Sleep(50 * time.Second)
			expires, err := s.Renew()
			if err != nil || !expires.Equal(time.Now().Add(time.Minute)) {
				t.Fatalf("Renew = %v, %v", expires, err)
			}
		}
		time.Sleep(50 * time.Second)
		take(t, s, 1, 1)
		time.Sleep(50 * time.Second)
		if err := s.Update(func(*registry.Spec) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		wantState(t, s, registry.StateActive, "")
		time.Sleep(time.Second)
		synctest.Wait()
		_, err := r.Lookup(secret)
		wantEnded(t, err, registry.ReasonLeaseExpired)
		_, err = s.Renew()
		wantEnded(t, err, registry.ReasonLeaseExpired)
		if got := r.Stats().Ended[registry.ReasonLeaseExpired]; got != 1 {
			t.Errorf("%d leases expired; want 1", got)
		}
		wantState(t, longer, registry.StateActive, "")
	})
}

func TestLeaseNeverRunsOutWithACallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{Lease: time.Minute})
		s, _ := register(t, r, registry.Spec{})
		call := admit(t, s)
		time.Sleep(30*time.Minute + time.Second)
		if call.Context().Err() != nil {
			t.Fatal("the call was cancelled")
		}
		commit(t, call, registry.Response{})
		time.Sleep(59 * time.Second)
		wantState(t, s, registry.StateActive, "")
		time.Sleep(time.Second)
		synctest.Wait()
		wantState(t, s, registry.StateEnded, "")
	})
}

func TestShortenedLeaseRunsOutEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{})
		if err := s.Update(func(spec *registry.Spec) error { spec.Lease = time.Second; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantState(t, s, registry.StateEnded, "")
	})
}

func TestEndedSecretIsKnownUntilTraceAndTombstoneAreGone(t *testing.T) {
	for _, test := range []struct{ tombstone, trace, known time.Duration }{
		{2 * time.Hour, time.Hour, 2 * time.Hour},
		{time.Minute, time.Hour, time.Hour},
	} {
		options := registry.Options{TombstoneTTL: test.tombstone, TraceRetention: test.trace, MaxSessions: 1}
		synctest.Test(t, func(t *testing.T) {
			r := running(t, options)
			s, secret := register(t, r, registry.Spec{ID: "a"})
			call := admit(t, s)
			call.Record(registry.Request{Body: []byte("{}")})
			commit(t, call, registry.Response{Body: []byte("{}")})
			want, err := r.End(t.Context(), "a", registry.EndOptions{})
			if err != nil {
				t.Fatal(err)
			}
			register(t, r, registry.Spec{Lease: 10 * time.Hour})

			time.Sleep(test.trace - time.Second)
			if got, err := r.Get("a"); err != nil || got != s {
				t.Errorf("Get = %v, %v", got, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			_, err = r.Get("a")
			wantIs(t, err, registry.ErrNotFound)
			if got := r.Stats().TraceBytes; got != 0 {
				t.Errorf("%d trace bytes; want 0", got)
			}
			if test.known > test.trace {
				time.Sleep(test.known - test.trace - time.Second)
				_, err = r.Lookup(secret)
				wantEnded(t, err, registry.ReasonDeleted)
				again, err := r.End(t.Context(), "a", registry.EndOptions{})
				if err != nil || !reflect.DeepEqual(again, want) {
					t.Errorf("End of the tombstone = %+v, %v; want %+v", again, err, want)
				}
				_, err = r.Register(registry.Spec{ID: "a"})
				wantIs(t, err, registry.ErrDuplicateID)
				time.Sleep(time.Second)
				synctest.Wait()
			}
			_, err = r.Lookup(secret)
			wantIs(t, err, registry.ErrUnknownSecret)
			_, err = r.End(t.Context(), "a", registry.EndOptions{})
			wantIs(t, err, registry.ErrNotFound)
		})
	}
}

func TestForgottenIDCanBeUsedAgain(t *testing.T) {
	options := registry.Options{TombstoneTTL: time.Minute, TraceRetention: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		r := running(t, options)
		register(t, r, registry.Spec{ID: "a"})
		if _, err := r.End(t.Context(), "a", registry.EndOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s, secret := register(t, r, registry.Spec{ID: "a"})
		time.Sleep(30 * time.Minute)
		if got, err := r.Lookup(secret); err != nil || got != s {
			t.Errorf("Lookup = %v, %v", got, err)
		}
	})
}

func TestPurgeDropsTheTraceAndKeepsTheTombstone(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, secret := register(t, r, registry.Spec{ID: "a"})
	call := admit(t, s)
	call.Record(registry.Request{Body: []byte("{}")})
	commit(t, call, registry.Response{Body: []byte("{}")})
	first, err := r.End(t.Context(), "a", registry.EndOptions{})
	if err != nil || first.Turns != 1 || first.EndReason != registry.ReasonDeleted {
		t.Fatalf("End = %+v, %v", first, err)
	}
	again, err := r.End(t.Context(), "a", registry.EndOptions{Reason: "other", Purge: true})
	if err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("End again = %+v, %v; want %+v", again, err, first)
	}
	_, err = r.Get("a")
	wantIs(t, err, registry.ErrNotFound)
	_, err = r.Lookup(secret)
	wantEnded(t, err, registry.ReasonDeleted)
	if stats := r.Stats(); stats.TraceBytes != 0 || stats.EvictedTraces != 0 || stats.Sessions[registry.StateEnded] != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

func TestEndWaitsForCallsToRecordThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		failing, committing, late := admit(t, s), admit(t, s), admit(t, s)
		late.Record(registry.Request{Body: []byte(`{"late":true}`)})
		go func() {
			<-failing.Context().Done()
			wantEnded(t, contextCause(failing), registry.ReasonDeleted)
			failing.Fail(registry.Failure{Kind: registry.FailureCancelled, Received: []byte("some")})
			failing.Close()
		}()
		go func() {
			<-committing.Context().Done()
			time.Sleep(time.Second)
			commit(t, committing, registry.Response{})
		}()
		began := time.Now()
		other := make(chan registry.Summary)
		go func() {
			synctest.Wait()
			summary, err := r.End(t.Context(), "a", registry.EndOptions{})
			if err != nil {
				t.Error(err)
			}
			other <- summary
		}()
		summary, err := r.End(t.Context(), "a", registry.EndOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got != 2*time.Second {
			t.Errorf("ended after %v; want 2s", got)
		}
		if summary.Turns != 1 || summary.FailedCalls[registry.FailureCancelled] != 2 || summary.Inflight != 0 {
			t.Errorf("summary is %+v", summary)
		}
		_, err = late.Commit(registry.Response{})
		wantIs(t, err, registry.ErrSealed)
		late.Fail(registry.Failure{Kind: registry.FailureTimeout})
		late.Close()
		trace := traceOf(t, s)
		if len(trace.FailedCalls) != 2 || string(trace.FailedCalls[1].Request()) != `{"late":true}` {
			t.Errorf("failed calls are %+v", trace.FailedCalls)
		}
		if got := <-other; !reflect.DeepEqual(got, summary) || !reflect.DeepEqual(trace.Summary, summary) {
			t.Errorf("the other End got %+v, the trace has %+v; want %+v", got, trace.Summary, summary)
		}
	})
}

func TestEndIsImmediateWithoutCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		take(t, s, 1, 1)
		began := time.Now()
		if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("ended after %v", got)
		}
	})
}

func TestEndForcesCallsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{MaxSessions: 1})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		call := admit(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		summary, err := r.End(ctx, "a", registry.EndOptions{})
		if err != nil || summary.FailedCalls[registry.FailureCancelled] != 1 {
			t.Errorf("End = %+v, %v", summary, err)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("ended after %v; want 1s", got)
		}
		call.Close()
		register(t, r, registry.Spec{})
	})
}

func TestEndedIsToldOnceForEverySessionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[string]int{}
		var mu sync.Mutex
		r := running(t, registry.Options{Ended: func(id string) {
			mu.Lock()
			defer mu.Unlock()
			told[id]++
		}})
		for _, id := range []string{"deleted", "discarded", "expired", "live"} {
			lease := time.Hour
			if id == "expired" {
				lease = time.Minute
			}
			register(t, r, registry.Spec{ID: id, Lease: lease})
		}
		for range 2 {
			if _, err := r.End(t.Context(), "deleted", registry.EndOptions{Purge: true}); err != nil {
				t.Fatal(err)
			}
			r.Discard("discarded")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if want := map[string]int{"deleted": 1, "discarded": 1, "expired": 1}; !reflect.DeepEqual(told, want) {
			t.Errorf("told %v; want %v", told, want)
		}
	})
}

func TestCutCancelsCallsOfAllSessionsBecauseOfTheDrain(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	var calls []*registry.Call
	for range 3 {
		s, _ := register(t, r, registry.Spec{})
		calls = append(calls, admit(t, s))
	}
	calls[0].Close()
	r.Drain()
	if n := r.Cut(); n != 2 {
		t.Errorf("cut %d calls; want 2", n)
	}
	for _, call := range calls[1:] {
		if cause := context.Cause(call.Context()); !errors.Is(cause, registry.ErrDraining) {
			t.Errorf("the cause is %v; want ErrDraining", cause)
		}
	}
}
