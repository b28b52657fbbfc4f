package proxy_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

func TestDurationStopsTheSessionAndItsCalls(t *testing.T) {
	bubble(t, func(s *stack) {
		stop := s.run()
		defer stop()
		s.model.Script("silent", hanging())
		r := s.register(registry.Spec{Limits: registry.Limits{MaxDuration: new(time.Minute)}})
		pass(time.Hour / 2) // it counts from the first call
		began := time.Now()
		answers, wait := parallel(3, func(i int) answer {
			return r.chat([]string{"silent", "silent", "stream-hang"}[i], []string{"", streaming, streaming}[i])
		})
		wait()
		if took := time.Since(began); took != time.Minute {
			s.t.Errorf("the calls ended after %s", took)
		}
		answers[0].wantStopped(s.t, "max_duration")
		answers[1].wantStopped(s.t, "max_duration")
		if a := answers[2]; a.StatusCode != 200 || a.err == nil || !strings.Contains(string(a.body), `"stop_condition":"max_duration"`) || strings.Contains(string(a.body), "[DONE]") {
			s.t.Errorf("the stream: %d, %v\n%s", a.StatusCode, a.err, a.body)
		}
		r.chat("openai", "").wantStopped(s.t, "max_duration")
		r.wantTurns(0, registry.FailureCancelled, registry.FailureCancelled, registry.FailureCancelled)
		s.wantIdle()
		if got := s.outcomes(); got["cancelled"] != 3 || got["refused"] != 1 {
			s.t.Errorf("outcomes are %v, want 3 cancelled and 1 refused", got)
		}
	})
}

// A call that waits for its place leaves the queue with its client.
func TestWaitingCallEndsWithItsClient(t *testing.T) {
	for name, limits := range map[string]registry.Limits{
		"max_inflight": {MaxInflight: new(1)}, "requests_per_second": {RequestsPerSecond: new(0.1)}, "instance": {},
	} {
		bubble(t, func(s *stack) {
			s.model.Script("silent", hanging())
			r := s.register(registry.Spec{Limits: limits})
			first, leaveFirst := abandonable(r.request(http.MethodPost, chatPath, chatBody("silent", "")))
			firstGone := r.leaveOnce(first, leaveFirst)
			second, leaveSecond := abandonable(r.request(http.MethodPost, chatPath, chatBody("openai", "")))
			secondGone := r.leaveOnce(second, leaveSecond)
			if n := s.registry.Stats().Waiting; n != 1 {
				s.t.Errorf("%s: %d calls wait, want 1", name, n)
			}
			secondGone()
			s.wantLogged(logged{Outcome: "client_disconnected", Status: 499})
			if n := s.registry.Stats().Waiting; n != 0 {
				s.t.Errorf("%s: %d calls wait, want none", name, n)
			}
			firstGone()
			s.wantIdle()
			if n := len(s.model.Requests()); n != 1 {
				s.t.Errorf("%s: %d calls went up, want 1", name, n)
			}
			pass(10 * time.Second)
			if got := r.chat("openai", ""); got.StatusCode != 200 {
				s.t.Errorf("%s: the next call: %d %s", name, got.StatusCode, got.body)
			}
		}, func(s *settings) { s.registry.MaxInflight = 1 })
	}
}

// L40: an end, a stop with cancel, reaches calls that wait and calls that run.
func TestEndOfTheSessionReachesItsCalls(t *testing.T) {
	for _, how := range []string{"end", "stop"} {
		bubble(t, func(s *stack) {
			s.model.Script("silent", hanging())
			r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(2)}})
			answers, wait := parallel(4, func(i int) answer {
				time.Sleep(time.Duration(i) * time.Millisecond)
				return r.chat([]string{"silent", "stream-hang", "openai", "openai"}[i], []string{"", streaming, "", streaming}[i])
			})
			pass(time.Second)
			if how == "end" {
				if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
					s.t.Fatal(err)
				}
			} else if err := r.session.Stop("enough", true); err != nil {
				s.t.Fatal(err)
			}
			wait()
			for _, i := range []int{0, 2, 3} {
				if how == "end" {
					answers[i].wantError(s.t, 410, "session_ended")
				} else {
					answers[i].wantStopped(s.t, "enough")
				}
			}
			if a := answers[1]; a.err == nil || strings.Contains(string(a.body), "[DONE]") {
				s.t.Errorf("the stream ended as if it were whole: %s", a.body)
			}
			s.wantIdle()
			for _, sent := range s.model.Requests() {
				<-sent.Done()
				if _, canceled := sent.Canceled(); !canceled {
					s.t.Error("the upstream was not told")
				}
			}
			r.wantTurns(0, registry.FailureCancelled, registry.FailureCancelled)
		})
	}
}

// R114: new work is refused, calls in flight end as they would.
func TestDrainingRefusesNewCallsAndFinishesOthers(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		gate := scripted.NewGate()
		script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
		script.Step, script.FlushHeader = gate, true
		s.model.Script("gated", script)
		l := r.open("gated", streaming+`,"stream_options":{"include_usage":true}`)
		s.registry.Drain()
		for _, extra := range []string{"", streaming} {
			got := r.chat("openai", extra)
			got.wantError(s.t, 503, "draining")
			if got.Header.Get("Retry-After") == "" || got.Header.Get("X-Should-Retry") != "" {
				s.t.Errorf("header %v", got.Header)
			}
		}
		gate.Open()
		if body, err := l.rest(); err != nil || body != string(script.Body) {
			s.t.Errorf("the stream: %v\n%s", err, body)
		}
		r.wantTurns(1)
	})
}
