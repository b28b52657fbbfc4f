package proxy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// wantStopped checks that the session takes no more turns, and why.
func (r *rollout) wantStopped(condition string) {
	r.t.Helper()
	if got := r.session.Summary(); got.State != registry.StateStopped || got.StopCondition != condition {
		r.t.Errorf("the session is %s with condition %q, want stopped with %q", got.State, got.StopCondition, condition)
	}
	n := len(r.model.Requests())
	for _, extra := range []string{"", streaming} {
		got := r.chat("openai", extra)
		got.wantError(r.t, http.StatusBadRequest, "session_stopped")
		if !strings.Contains(string(got.body), `"stop_condition":"`+condition+`"`) || got.Header.Get("X-Should-Retry") != "false" {
			r.t.Errorf("got %v %s", got.Header, got.body)
		}
	}
	if len(r.model.Requests()) != n {
		r.t.Error("a stopped session's call reached the upstream")
	}
}

// L36: a prompt that no longer fits ends the session, whoever says so and how.
func TestPromptThatDoesNotFitStopsTheSession(t *testing.T) {
	for _, model := range []string{
		"400-context-openai", "400-context-vllm", "400-context-vllm-prompt", "400-context-vllm-old", "400-context-sglang", "400-context-sglang-total",
	} {
		for _, extra := range []string{"", streaming, usageAsked} {
			bubble(t, func(s *stack) {
				r := s.register(registry.Spec{})
				got := r.chat(model, extra)
				want := scripted.Fixture("errors/" + strings.TrimPrefix(model, "400-") + ".json")
				if got.StatusCode != 400 || string(got.body) != string(want) || got.Header.Get("X-Should-Retry") != "false" {
					s.t.Errorf("%s: got %d %v\n%s", model, got.StatusCode, got.Header, got.body)
				}
				if n := len(s.model.Requests()); n != 1 {
					s.t.Errorf("%s: the upstream got %d requests", model, n)
				}
				r.wantTurns(0, registry.FailureClientError)
				r.wantStopped("context_length")
			})
		}
	}
}

// L36: and so does one that is reported inside a 200.
func TestPromptThatDoesNotFitStopsTheSessionInsideA200Too(t *testing.T) {
	overflow := string(scripted.Fixture("errors/context-vllm.json"))
	for name, script := range map[string]scripted.Script{
		"first event":      scripted.SSE([]byte("data: " + overflow + "\n\ndata: [DONE]\n\n")),
		"after text":       scripted.SSE([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: " + overflow + "\n\n")),
		"JSON":             scripted.JSON([]byte(overflow)),
		"JSON, old SGLang": scripted.JSON(scripted.Fixture("errors/context-sglang.json")),
	} {
		bubble(t, func(s *stack) {
			s.model.Script("overflow", script)
			r := s.register(registry.Spec{})
			if got := r.chat("overflow", usageAsked); got.StatusCode != 200 || string(got.body) != string(script.Body) {
				s.t.Errorf("%s: got %d\n%s", name, got.StatusCode, got.body)
			}
			r.wantTurns(0, registry.FailureUpstreamError)
			r.wantStopped("context_length")
		})
	}
}

// L36: other refusals end nothing, nor does such a text in an answer.
func TestOnlyARefusalSaysThatThePromptDoesNotFit(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		s.model.Script("busy", scripted.Error(429, []byte(`{"error":{"message":"the maximum context length is busy"}}`)))
		s.model.Script("broken", scripted.Error(500, []byte(`{"error":{"message":"maximum context length"}}`)))
		s.say("talk", "the maximum context length is 8192 tokens")
		for _, model := range []string{"busy", "broken", "talk", "404", "400-stream-options"} {
			r.chat(model, "")
			r.chat(model, streaming)
		}
		if got := r.session.Summary(); got.State != registry.StateActive {
			s.t.Errorf("the session is %s with %s", got.State, got.StopCondition)
		}
	})
}

// A rule that a turn meets delivers that turn and refuses the next.
func TestStopRulesFireOnTheTurnThatMeetsThem(t *testing.T) {
	rules := []registry.StopCondition{
		{Name: "submitted", ToolCall: "submit"},
		{Name: "gave_up", TextRegexp: regexp.MustCompile(`I cannot (solve|do) this`)},
		{Name: "weather", ToolCall: "now"},
	}
	for _, extra := range []string{"", streaming} {
		for answer, condition := range map[string]string{
			"Well: I cannot solve this.": "gave_up", "I can solve this": "", "tools": "weather",
		} {
			bubble(t, func(s *stack) {
				model := "said"
				s.say(model, answer)
				if answer == "tools" {
					model = "openai-tools" // the third of its calls is `now`
				}
				r := s.register(registry.Spec{StopConditions: rules})
				if got := r.chat(model, extra); got.StatusCode != 200 || got.err != nil {
					s.t.Errorf("%s: got %d %v", answer, got.StatusCode, got.err)
				}
				r.wantTurns(1)
				if condition != "" {
					r.wantStopped(condition)
				} else if got := r.session.Summary(); got.State != registry.StateActive {
					s.t.Errorf("%s: the session is %s", answer, got.State)
				}
			})
		}
	}
}

// A text is matched whole, however it was cut into deltas.
func TestTextRuleSeesThroughDeltas(t *testing.T) {
	bubble(t, func(s *stack) {
		var stream strings.Builder
		for _, c := range "done: 😀 <answer>" {
			fmt.Fprintf(&stream, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", string(c))
		}
		stream.WriteString("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
		s.model.Script("letters", scripted.SSE([]byte(stream.String())))
		r := s.register(registry.Spec{StopConditions: []registry.StopCondition{{Name: "answered", TextRegexp: regexp.MustCompile(`^done: 😀 <answer>$`)}}})
		r.chat("letters", streaming)
		r.wantStopped("answered")
	})
}

// A call that makes no turn meets no rule.
func TestBrokenTurnMeetsNoRule(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{StopConditions: []registry.StopCondition{{Name: "any", TextRegexp: regexp.MustCompile(`.*`)}}})
		r.chat("stream-abort", streaming)
		r.chat("truncated-length", "")
		if got := r.session.Summary(); got.State != registry.StateActive {
			s.t.Errorf("the session is %s", got.State)
		}
	})
}
