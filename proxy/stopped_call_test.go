package proxy_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxproxy/muxproxy/registry"
)

// A session that is stopped with its calls breaks a stream off and refuses a
// JSON call, under the condition it was stopped with.
func TestSessionStoppedWithItsCallsCancelsThem(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.open("stream-hang", usageAsked)
		var got answer
		var calling sync.WaitGroup
		calling.Go(func() { got = r.chat("silent", "") })
		synctest.Wait()
		if err := r.session.Stop("weights_changed", true); err != nil {
			s.t.Fatal(err)
		}
		calling.Wait()
		got.wantError(s.t, 400, "session_stopped")
		rest, err := l.rest()
		for _, body := range []string{string(got.body), rest} {
			if !strings.Contains(body, `"stop_condition":"weights_changed"`) {
				s.t.Errorf("got %s", body)
			}
		}
		if err == nil || strings.Contains(rest, "[DONE]") {
			s.t.Errorf("the stream ended with %v\n%s", err, rest)
		}
		synctest.Wait()
		if n := s.outcomes()["cancelled"]; n != 2 {
			s.t.Errorf("outcomes are %v, want two cancelled", s.outcomes())
		}
		r.wantTurns(0, registry.FailureCancelled, registry.FailureCancelled)
		s.wantIdle()
	})
}

// A session that is stopped without its calls lets them finish.
func TestSessionStoppedWithoutItsCallsLetsThemFinish(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.open("stream-ids-slow", usageAsked)
		l.event()
		if err := r.session.Stop("enough", false); err != nil {
			s.t.Fatal(err)
		}
		if rest, err := l.rest(); err != nil || !strings.HasSuffix(rest, doneEvent) {
			s.t.Errorf("the stream ended with %v\n%s", err, rest)
		}
		r.wantTurns(1)
		r.wantStopped("enough")
	})
}

// A call that waits for its turn is refused when the session stops.
func TestWaitingCallIsRefusedWhenTheSessionStops(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		l := r.open("stream-ids-slow", usageAsked)
		var got answer
		var calling sync.WaitGroup
		calling.Go(func() { got = r.chat("openai", "") })
		synctest.Wait()
		if err := r.session.Stop("enough", false); err != nil {
			s.t.Fatal(err)
		}
		calling.Wait()
		got.wantError(s.t, 400, "session_stopped")
		s.wantLogged(logged{Outcome: "refused", Status: 400})
		if _, err := l.rest(); err != nil {
			s.t.Error(err)
		}
		r.wantTurns(1)
		s.wantIdle()
	})
}

// max_turns is exact for streams in parallel, whose turns are made at their end.
func TestTurnLimitIsExactForParallelStreams(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(5))}})
		var calling sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for range 40 {
			calling.Go(func() {
				got := r.chat("stream-ids-slow", streaming)
				mu.Lock()
				defer mu.Unlock()
				statuses[got.StatusCode]++
			})
		}
		calling.Wait()
		if statuses[200] != 5 || statuses[400] != 35 {
			s.t.Errorf("statuses are %v, want 5 times 200", statuses)
		}
		r.wantTurns(5)
		r.wantStopped("max_turns")
		s.wantIdle()
	})
}

// A stream that breaks off gives its turn back.
func TestBrokenStreamGivesItsTurnBack(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(1))}})
		for _, model := range []string{"stream-reset", "stream-no-terminal", "sglang-abort", "stream-error-first", "500", "truncated-clean"} {
			r.chat(model, streaming)
		}
		if got := r.chat("openai", streaming); got.StatusCode != 200 || got.err != nil {
			s.t.Errorf("got %d %v", got.StatusCode, got.err)
		}
		r.wantTurns(1, registry.FailureUpstreamTruncated, registry.FailureUpstreamTruncated, registry.FailureAborted,
			registry.FailureUpstreamError, registry.FailureUpstreamError, registry.FailureUpstreamTruncated)
		r.chat("openai", "").wantError(s.t, 400, "session_stopped")
		r.wantStopped("max_turns")
	})
}
