package proxy_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/registry"
)

// What was answered before a new request of the same content came is not for the
// retries of that one, however that one ends.
func TestRetryIsNotAnsweredByWhatItsFirstTryHasSuperseded(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := answers(5)
		all[1].HoldHeader = gate
		all[3] = scripted.Error(503, nil)
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		if got := r.retry(0, "counting", "").number(s.t); got != 0 {
			s.t.Errorf("the first request got answer %d", got)
		}
		var running sync.WaitGroup
		running.Go(func() { r.retry(0, "counting", "") })
		synctest.Wait()
		if got := r.retry(1, "counting", "").number(s.t); got != 2 {
			s.t.Errorf("the retry of the one that runs got answer %d, want one of its own", got)
		}
		close(gate)
		running.Wait()

		if got := r.retry(0, "counting", ""); got.StatusCode != 503 {
			s.t.Errorf("the failing request got %d %s", got.StatusCode, got.body)
		}
		for range 2 { // the second is no retry of the first: it counts no more tries
			if got := r.retry(1, "counting", ""); got.StatusCode != 200 || got.number(s.t) < 3 {
				s.t.Errorf("after a failure a retry got %s", got.body)
			}
		}
		r.wantTurns(5, registry.FailureUpstreamError)
	})
}

func TestEachOfManyAnswersIsRememberedUntilItsTimeIsOver(t *testing.T) {
	bubble(t, func(s *stack) {
		const n, later = 4200, 100
		s.model.Sequence("counting", answers(n+later)...)
		sessions := []*rollout{s.register(registry.Spec{}), s.register(registry.Spec{})}
		all := func(count, first, requests, step int) {
			for i := 0; i < requests; i += step {
				if got := sessions[i%2].retry(count, "counting", `"x":`+strconv.Itoa(i/2)).number(s.t); got != first+i {
					s.t.Fatalf("try %d of request %d got answer %d, want %d", count, i, got, first+i)
				}
			}
		}
		all(0, 0, n, 1)
		pass(time.Minute)
		all(1, 0, n, 97)
		pass(2 * time.Minute)
		all(0, n, later, 1)
		if kept := s.proxy.KeptForRetries(); kept != later*proxy.AttemptBytes {
			s.t.Errorf("%d bytes are kept of %d requests, want %d", kept, later, later*proxy.AttemptBytes)
		}
		all(1, n, later, 1)
	})
}
