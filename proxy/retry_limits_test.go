package proxy_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// Nothing is counted against a limit but turns.
func TestRetriesAreAnsweredAtLimitsAndAfterAStop(t *testing.T) {
	bubble(t, func(s *stack) {
		limits := registry.Limits{MaxTurns: new(int64(1)), MaxInflight: new(1), RequestsPerSecond: new(0.001)}
		r := s.register(registry.Spec{Limits: limits})
		first := r.retry(0, "openai", "")
		for count := 1; count < 4; count++ {
			r.retry(count, "openai", "").wantSame(s.t, first)
		}
		r.retry(0, "openai", `"x":1`).wantError(s.t, 400, "session_stopped")
		if r.session.State() != registry.StateStopped {
			s.t.Error("the session is not stopped")
		}
		r.retry(4, "openai", "").wantSame(s.t, first)
		r.wantTurns(1)
		s.wantCalls(1)
		s.wantIdle()
		if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
			s.t.Fatal(err)
		}
		r.retry(5, "openai", "").wantError(s.t, 410, "session_ended")
	})
}

// The call that its client left is the session's last: its retry joins it all the same.
func TestCallOfAStoppedSessionIsJoined(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		script := answers(1)[0]
		script.HoldHeader = gate
		s.model.Script("gated", script)
		r := s.register(registry.Spec{})
		r.desert(r.try(0, chatPath, chatBody("gated", "")))
		if err := r.session.Stop("", false); err != nil {
			s.t.Fatal(err)
		}
		var joined answer
		var joining sync.WaitGroup
		joining.Go(func() { joined = r.retry(1, "gated", "") })
		synctest.Wait()
		close(gate)
		joining.Wait()
		if joined.number(s.t) != 0 {
			s.t.Errorf("got %d %s", joined.StatusCode, joined.body)
		}
		r.wantTurns(1)
	})
}

// A joiner is told what its call is told.
func TestJoinerOfACallThatIsCancelledLearnsWhy(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		r.desert(r.try(0, chatPath, chatBody("silent", "")))
		var joined answer
		var joining sync.WaitGroup
		joining.Go(func() { joined = r.retry(1, "silent", "") })
		synctest.Wait()
		if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
			s.t.Fatal(err)
		}
		joining.Wait()
		joined.wantError(s.t, 410, "session_ended")
		r.wantTurns(0, registry.FailureCancelled)
	})
}

func TestTriesAreShownInTheTrace(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		if got := r.retry(0, "500-once", ""); got.StatusCode != 500 {
			s.t.Errorf("got %d", got.StatusCode)
		}
		if got := r.retry(1, "500-once", ""); got.StatusCode != 200 {
			s.t.Errorf("got %d", got.StatusCode)
		}
		r.wantTurns(1, registry.FailureUpstreamError)
		trace := r.trace()
		if turn, failure := trace.Turns[0], trace.FailedCalls[0]; turn.Attempt != 1 || failure.Attempt != 0 || turn.Digest != failure.Digest {
			s.t.Errorf("the turn is try %d, the failed call %d", turn.Attempt, failure.Attempt)
		}
	})
}

// A client that leaves keeps its place in the queue as long as its retry may come.
func TestRetryTakesOverAPlaceInTheQueue(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := answers(2)
		all[0].HoldHeader = gate
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		numbers := make([]int, 2)
		var calling sync.WaitGroup
		calling.Go(func() { numbers[0] = r.chat("counting", "").number(s.t) })
		synctest.Wait()
		r.desert(r.try(0, chatPath, chatBody("counting", `"x":1`)))
		calling.Go(func() { numbers[1] = r.retry(1, "counting", `"x":1`).number(s.t) })
		pass(10 * time.Second)
		s.wantCalls(1)
		close(gate)
		calling.Wait()
		if numbers[0] != 0 || numbers[1] != 1 {
			s.t.Errorf("the answers are %v", numbers)
		}
		r.wantTurns(2)
		s.wantIdle()
	})
}
