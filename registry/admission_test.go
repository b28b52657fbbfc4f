package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

type jsonRaw = json.RawMessage

func contextCause(call *registry.Call) error { return context.Cause(call.Context()) }

func wantBusy(tb testing.TB, err error, what string, retryAfter time.Duration) {
	tb.Helper()
	busy, ok := errors.AsType[*registry.BusyError](err)
	if !ok || busy.What != what || busy.RetryAfter != retryAfter {
		tb.Errorf("error is %v; want busy with %s, retry after %v", err, what, retryAfter)
	}
}

func TestConcurrencyQueuesInOrderThenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{AdmitTimeout: 10 * time.Second})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		first := admit(t, s)
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				call, err := s.Admit(t.Context(), registry.CallInfo{})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				time.Sleep(time.Second)
				call.Close()
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		first.Close()
		all.Wait()
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("order is %v; want %v", order, want)
		}

		held := admit(t, s)
		began := time.Now()
		_, err := s.Admit(t.Context(), registry.CallInfo{})
		wantBusy(t, err, registry.BusyMaxInflight, time.Second)
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("refused after %v; want 10s", got)
		}
		held.Close()
		admit(t, s).Close()
	})
}

func TestRaisedConcurrencyLetsWaitingCallsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				call := admit(t, s)
				time.Sleep(time.Minute / 2)
				call.Close()
			})
		}
		synctest.Wait()
		if got := r.Stats(); got.Inflight != 1 || got.Waiting != 2 {
			t.Errorf("%d in flight, %d wait; want 1 and 2", got.Inflight, got.Waiting)
		}
		if err := s.Update(func(spec *registry.Spec) error { spec.Limits.MaxInflight = nil; return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.Stats().Inflight; got != 3 {
			t.Errorf("%d in flight; want 3", got)
		}
		all.Wait()
	})
}

func TestWaitingCallsAreWokenByStopEndAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		wait := func(ctx context.Context, s *registry.Session) <-chan error {
			result := make(chan error, 1)
			go func() {
				_, err := s.Admit(ctx, registry.CallInfo{})
				result <- err
			}()
			synctest.Wait()
			return result
		}
		one := registry.Limits{MaxInflight: new(1)}
		stopped, _ := register(t, r, registry.Spec{Limits: one})
		held := admit(t, stopped)
		waiting := wait(t.Context(), stopped)
		if err := stopped.Stop("enough", false); err != nil {
			t.Fatal(err)
		}
		wantStopped(t, <-waiting, "enough")
		held.Close()

		ended, _ := register(t, r, registry.Spec{ID: "ended", Limits: one})
		held = admit(t, ended)
		waiting = wait(t.Context(), ended)
		go func() {
			<-held.Context().Done()
			held.Close()
		}()
		if _, err := r.End(t.Context(), "ended", registry.EndOptions{}); err != nil {
			t.Fatal(err)
		}
		wantEnded(t, <-waiting, registry.ReasonDeleted)

		cancelled, _ := register(t, r, registry.Spec{Limits: one})
		held = admit(t, cancelled)
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting = wait(ctx, cancelled)
		cancel(gone)
		wantIs(t, <-waiting, gone)
		held.Close()
		admit(t, cancelled).Close()
	})
}

func TestWaitingCallsLearnThatTheLastTurnIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(2)), MaxInflight: new(1)}})
		call := admit(t, s)
		results := make(chan error, 4)
		for range 4 {
			go func() {
				call, err := s.Admit(t.Context(), registry.CallInfo{})
				if err == nil {
					commit(t, call, registry.Response{})
				}
				results <- err
			}()
		}
		synctest.Wait()
		commit(t, call, registry.Response{})
		admitted := 0
		for range 4 {
			if err := <-results; err == nil {
				admitted++
			} else {
				wantStopped(t, err, registry.LimitTurns)
			}
		}
		if admitted != 1 {
			t.Errorf("%d calls were admitted for one turn", admitted)
		}
		wantState(t, s, registry.StateStopped, registry.LimitTurns)
	})
}

func TestRatesSpaceCallsEvenly(t *testing.T) {
	for _, test := range []struct {
		name    string
		options registry.Options
		limits  registry.Limits
		what    string
	}{
		{"session", registry.Options{AdmitTimeout: time.Second}, registry.Limits{RequestsPerSecond: new(5.0)}, registry.BusyRequestsPerSecond},
		{"instance", registry.Options{AdmitTimeout: time.Second, RequestsPerSecond: 5}, registry.Limits{}, registry.BusyInstance},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := running(t, test.options)
			s, _ := register(t, r, registry.Spec{Limits: test.limits})
			began := time.Now()
			admit(t, s).Close()
			if got := time.Since(began); got != 0 {
				t.Errorf("%s: the first call waited %v", test.name, got)
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			var times []time.Duration
			for range 5 {
				all.Go(func() {
					admit(t, s).Close()
					mu.Lock()
					defer mu.Unlock()
					times = append(times, time.Since(began).Round(time.Millisecond))
				})
			}
			synctest.Wait()
			_, err := s.Admit(t.Context(), registry.CallInfo{})
			wantBusy(t, err, test.what, 2*time.Second)
			if got := time.Since(began); got != 0 {
				t.Errorf("%s: refused after %v; want at once", test.name, got)
			}
			all.Wait()
			admit(t, s).Close() // the refused call holds up nobody
			times = append(times, time.Since(began).Round(time.Millisecond))
			var want []time.Duration
			for i := range 6 {
				want = append(want, time.Duration(i+1)*time.Second/5)
			}
			if !slices.Equal(times, want) {
				t.Errorf("%s: admitted at %v; want %v", test.name, times, want)
			}
		})
	}
}

func TestRetryAfterIsAtMostAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{RequestsPerSecond: new(0.001)}})
		admit(t, s).Close()
		_, err := s.Admit(t.Context(), registry.CallInfo{})
		wantBusy(t, err, registry.BusyRequestsPerSecond, time.Minute)
	})
}

func TestInstanceConcurrencyIsSharedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{MaxInflight: 2, AdmitTimeout: 3 * time.Second})
		a, _ := register(t, r, registry.Spec{})
		b, _ := register(t, r, registry.Spec{})
		calls := []*registry.Call{admit(t, a), admit(t, b)}
		_, err := a.Admit(t.Context(), registry.CallInfo{})
		wantBusy(t, err, registry.BusyInstance, time.Second)
		admitted := make(chan *registry.Call, 1)
		go func() { admitted <- admit(t, b) }()
		synctest.Wait()
		calls[0].Close()
		calls[0].Close()
		third := <-admitted
		if got := r.Stats().Inflight; got != 2 {
			t.Errorf("%d in flight; want 2", got)
		}
		third.Close()
		calls[1].Close()
	})
}

func TestBurstOfParallelCallsPassesWithoutLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{})
		began := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { commit(t, admit(t, s), registry.Response{}) })
		}
		all.Wait()
		if got := time.Since(began); got != 0 || s.Summary().Turns != 50 {
			t.Errorf("%d turns after %v; want 50 at once", s.Summary().Turns, got)
		}
	})
}

// The budget runs out at the very moment at which the session's own gate lets
// the call in: it must not wait at the instance's gate without one.
func TestBudgetThatIsOverAtOneGateHoldsAtTheNext(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			r := newRegistry(t, registry.Options{MaxInflight: 1, AdmitTimeout: time.Minute})
			s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
			other, _ := register(t, r, registry.Spec{})
			first := admit(t, s)
			waiting := make(chan error, 2)
			go func() {
				_, err := other.Admit(t.Context(), registry.CallInfo{})
				waiting <- err
			}()
			go func() {
				_, err := s.Admit(t.Context(), registry.CallInfo{})
				waiting <- err
			}()
			time.AfterFunc(time.Minute, first.Close)
			start := time.Now()
			for range 2 {
				if err := <-waiting; err == nil {
					t.Log("one of them was let in")
				}
			}
			if waited := time.Since(start); waited > time.Minute {
				t.Fatalf("a call waited %s", waited)
			}
		})
	}
}

func TestCallsThatWaitAreNotInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, registry.Options{RequestsPerSecond: 0.1, MaxInflight: 9})
		s, _ := register(t, r, registry.Spec{})
		for range 5 {
			go func() { _, _ = s.Admit(t.Context(), registry.CallInfo{}) }()
		}
		synctest.Wait()
		if stats := r.Stats(); stats.Inflight != 1 || stats.Waiting != 4 {
			t.Errorf("%d in flight and %d waiting; want 1 and 4", stats.Inflight, stats.Waiting)
		}
		time.Sleep(time.Minute)
	})
}
