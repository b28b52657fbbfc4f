package proxy_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// wantStopped checks that a call was refused because its session is stopped.
func (a answer) wantStopped(t *testing.T, condition string) {
	t.Helper()
	a.wantError(t, 400, "session_stopped")
	var body struct {
		StopCondition string `json:"stop_condition"`
	}
	if err := json.Unmarshal(a.body, &body); err != nil || body.StopCondition != condition || a.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("header %v, body %s; want stop_condition %s and no retry", a.Header, a.body, condition)
	}
}

// wantState checks a session's state and why it is in it.
func (r *rollout) wantState(state registry.State, condition string) {
	r.t.Helper()
	if sum := r.session.Summary(); sum.State != state || sum.StopCondition != condition {
		r.t.Errorf("the session is %s because of %q, want %s because of %q", sum.State, sum.StopCondition, state, condition)
	}
}

// held makes a script that waits before its header until release is called.
func (s *stack) held(model string, script scripted.Script) (release func()) {
	hold := make(chan struct{})
	script.HoldHeader = hold
	s.model.Script(model, script)
	return func() { close(hold) }
}

// parallel makes n calls at once. The answers are there when wait returns.
func parallel(n int, call func(i int) answer) (answers []answer, wait func()) {
	answers = make([]answer, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { answers[i] = call(i) })
	}
	return answers, calls.Wait
}

func count(answers []answer, status int) (n int) {
	for _, a := range answers {
		if a.Response != nil && a.StatusCode == status {
			n++
		}
	}
	return n
}

// L38: calls in flight count, so parallel ones do not overshoot.
func TestTurnLimitIsExactUnderParallelCalls(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		bubble(t, func(s *stack) {
			release := s.held("held", answering(&scripted.Request{Body: []byte(extra)}))
			r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(6))}})
			r.chat("openai", extra)
			answers, wait := parallel(32, func(int) answer { return r.chat("held", extra) })
			synctest.Wait()
			if n := count(answers, 400); n != 27 {
				s.t.Errorf("%d of 32 calls were refused at once, want 27", n)
			}
			r.wantState(registry.StateActive, "")
			release()
			wait()
			if n := count(answers, 200); n != 5 {
				s.t.Errorf("%d of 32 calls were let through, want 5", n)
			}
			for _, a := range answers {
				if a.StatusCode != 200 {
					a.wantStopped(s.t, "max_turns")
				}
			}
			r.chat("openai", extra).wantStopped(s.t, "max_turns")
			r.wantTurns(6)
			r.wantState(registry.StateStopped, "max_turns")
			if n := len(s.model.Requests()); n != 6 {
				s.t.Errorf("%d calls went up, want 6", n)
			}
			s.wantIdle()
		})
	}
}

func TestFailedCallGivesItsTurnBack(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(2))}})
	for _, model := range []string{"500", "stream-abort", "html", "429", "error-200", "reset-at-once", "openai", "404", "openai"} {
		if got := r.chat(model, streaming); got.StatusCode == 400 {
			t.Fatalf("%s: %s", model, got.body)
		}
	}
	r.chat("openai", "").wantStopped(t, "max_turns")
	if n := len(r.turns()); n != 2 {
		t.Errorf("%d turns, want 2", n)
	}
}

func TestZeroIsALimit(t *testing.T) {
	s := newStack(t)
	none := new(int64(0))
	for condition, limits := range map[string]registry.Limits{
		"max_turns": {MaxTurns: none}, "max_input_tokens": {MaxInputTokens: none}, "max_output_tokens": {MaxOutputTokens: none},
		"max_total_tokens": {MaxTotalTokens: none}, "max_context_tokens": {MaxContextTokens: none},
	} {
		s.register(registry.Spec{Limits: limits}).chat("openai", "").wantStopped(t, condition)
	}
}

// L37: token limits count what the upstream reports, streamed or not, asked for or not.
func TestTokenLimitsCountReportedUsage(t *testing.T) {
	s := newStack(t) // its answers use 19 and 6 tokens
	for _, extra := range []string{"", streaming, streaming + `,"stream_options":{"include_usage":false}`} {
		for condition, c := range map[string]struct {
			limits registry.Limits
			turns  int
		}{
			"max_input_tokens":   {registry.Limits{MaxInputTokens: new(int64(57))}, 3},
			"max_output_tokens":  {registry.Limits{MaxOutputTokens: new(int64(7))}, 2},
			"max_total_tokens":   {registry.Limits{MaxTotalTokens: new(int64(25))}, 1},
			"max_context_tokens": {registry.Limits{MaxContextTokens: new(int64(25))}, 1},
		} {
			r := s.register(registry.Spec{Limits: c.limits})
			for i := range c.turns {
				if got := r.chat("openai", extra); got.StatusCode != 200 || strings.Contains(extra, "false") && strings.Contains(string(got.body), `"prompt_tokens"`) {
					t.Errorf("%s, turn %d: %d %s", condition, i, got.StatusCode, got.body)
				}
			}
			r.chat("openai", extra).wantStopped(t, condition)
			r.wantTurns(c.turns)
			r.wantState(registry.StateStopped, condition)
		}
	}
}

func TestSessionIsStoppedWhenItsContextIsFull(t *testing.T) { // L36
	s := newStack(t)
	for _, model := range []string{"400-context-openai", "400-context-vllm", "400-context-sglang"} {
		for _, extra := range []string{"", streaming} {
			r := s.register(registry.Spec{})
			got := r.chat(model, extra)
			if got.StatusCode != 400 || string(got.body) != string(s.direct(chatBody(model, extra)).body) || got.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %d %v %s", model, got.StatusCode, got.Header, got.body)
			}
			r.chat("openai", extra).wantStopped(t, "context_length")
		}
	}
}

func TestRuleStopsAfterTheTurnThatMeetsIt(t *testing.T) {
	s := newStack(t)
	rules := []registry.StopCondition{{Name: "submitted", ToolCall: "get_weather"}, {Name: "greeted", TextRegexp: regexp.MustCompile(`Hello`)}}
	for _, extra := range []string{"", streaming} {
		r := s.register(registry.Spec{StopConditions: rules})
		if got := r.chat("openai", extra); got.StatusCode != 200 || got.err != nil {
			t.Errorf("the turn itself: %d, %v", got.StatusCode, got.err)
		}
		r.chat("openai", extra).wantStopped(t, "greeted")
		r.wantTurns(1)
	}
}

func TestStoppedSessionSaysSoWithItsOwnReason(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	if err := r.session.Stop("tunnel_lost", false); err != nil {
		t.Fatal(err)
	}
	r.chat("openai", "").wantStopped(t, "tunnel_lost")
	got := r.do(r.request(http.MethodPost, "/v1/messages", chatBody("openai", "")))
	if got.StatusCode != 400 || !strings.HasPrefix(string(got.body), `{"type":"error","error":{"type":"invalid_request_error"`) || !strings.Contains(string(got.body), `"stop_condition":"tunnel_lost"`) {
		t.Errorf("messages: %d %s", got.StatusCode, got.body)
	}
	if got := r.do(r.request(http.MethodGet, "/v1/models", "")); got.StatusCode != 200 { // takes no turn
		t.Errorf("models: %d %s", got.StatusCode, got.body)
	}
}

func TestConcurrencyQueuesInOrderAndThenIsTooMuch(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.JSON(scripted.Fixture("openai/chat.json"))
		script.Delay = 12 * time.Second
		s.model.Script("slow", script)
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(2)}})
		began := time.Now()
		took := make([]time.Duration, 12)
		answers, wait := parallel(len(took), func(i int) answer {
			time.Sleep(time.Duration(i) * time.Millisecond) // the order they come in
			got := r.chat("slow", `"x":"`+itoa(i)+`"`)
			took[i] = time.Since(began)
			return got
		})
		wait()
		// two at a time in 12 s each; what would begin after 30 s is refused
		for i, a := range answers {
			round := i / 2
			switch {
			case round <= 2:
				if want := time.Duration(round+1) * 12 * time.Second; a.StatusCode != 200 || took[i].Round(time.Second) != want {
					s.t.Errorf("call %d: %d after %s, want 200 after %s", i, a.StatusCode, took[i], want)
				}
			default:
				a.wantError(s.t, 429, "rate_limited")
				if took[i].Round(time.Second) != 30*time.Second || a.Header.Get("Retry-After") != "1" || a.Header.Get("X-Should-Retry") != "" {
					s.t.Errorf("call %d: refused after %s with %v", i, took[i], a.Header)
				}
			}
		}
		for i, sent := range s.model.Requests() {
			if i > 0 && sent.ReceivedAt.Before(s.model.Requests()[i-1].ReceivedAt) || !strings.Contains(string(sent.Body), `"x":"`+itoa(i)+`"`) {
				s.t.Errorf("call %d went up as number %d", i, i)
			}
		}
		r.wantTurns(6)
		s.wantIdle()
	}, func(s *settings) { s.registry.AdmitTimeout = 30 * time.Second })
}

func TestRateSpacesCallsAndRefusesWhatWouldWaitTooLong(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{RequestsPerSecond: new(0.5)}})
		began := time.Now()
		answers, wait := parallel(9, func(int) answer { return r.chat("openai", "") })
		wait()
		if n := count(answers, 200); n != 6 { // at 0, 2, ... 10 s
			s.t.Errorf("%d calls were let through, want 6", n)
		}
		for _, a := range answers {
			if a.StatusCode == 200 {
				continue
			}
			a.wantError(s.t, 429, "rate_limited")
			if after := a.Header.Get("Retry-After"); after != "12" {
				s.t.Errorf("Retry-After is %q, want 12", after)
			}
		}
		for i, sent := range s.model.Requests() {
			if at, want := sent.ReceivedAt.Sub(began), time.Duration(i)*2*time.Second; at != want {
				s.t.Errorf("call %d went up after %s, want %s", i, at, want)
			}
		}
	}, func(s *settings) { s.registry.AdmitTimeout = 10 * time.Second })
}

func TestInstanceLimitsHoldForAllSessions(t *testing.T) {
	bubble(t, func(s *stack) {
		release := s.held("held", scripted.JSON(scripted.Fixture("openai/chat.json")))
		answers, wait := parallel(8, func(int) answer { return s.register(registry.Spec{}).chat("held", "") })
		synctest.Wait()
		if n := len(s.model.Requests()); n != 3 {
			s.t.Errorf("%d calls are up, want 3", n)
		}
		pass(10 * time.Second)
		if n := count(answers, 429); n != 5 {
			s.t.Errorf("%d calls were refused, want 5", n)
		}
		release()
		wait()
		if n := count(answers, 200); n != 3 {
			s.t.Errorf("%d calls were answered, want 3", n)
		}
		s.wantIdle()
	}, func(s *settings) { s.registry.MaxInflight, s.registry.AdmitTimeout = 3, 10*time.Second })
}

// R94: by default nothing holds up a burst.
func TestDefaultLimitsLetFiftyParallelCallsThrough(t *testing.T) {
	bubble(t, func(s *stack) {
		release := s.held("held", scripted.JSON(scripted.Fixture("openai/chat.json")))
		r := s.register(registry.Spec{})
		answers, wait := parallel(50, func(i int) answer {
			if i%2 == 0 {
				return s.do(r.chunked(chatPath, strings.NewReader(chatBody("held", ""))))
			}
			return r.chat("held", "")
		})
		synctest.Wait()
		if n := len(s.model.Requests()); n != 50 {
			s.t.Errorf("%d calls are up, want 50", n)
		}
		release()
		wait()
		if n := count(answers, 200); n != 50 {
			s.t.Errorf("%d calls were answered, want 50", n)
		}
		r.wantTurns(50)
	})
}
