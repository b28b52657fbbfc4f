package proxy_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

func TestRefusalsOfMessagesHaveAnthropicsShape(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{})
	stranger := &rollout{s, r.session, "mxp_ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
	stranger.messages("anthropic", "").wantMessagesError(t, 401, "authentication_error", "invalid_api_key")
	r.do(r.messagesRequest(`{"model":"anthropic"}`)).wantMessagesError(t, 400, "invalid_request_error", "invalid_request")
	r.do(r.request(http.MethodGet, messagesPath, "")).wantMessagesError(t, 405, "invalid_request_error", "method_not_allowed")
	r.messages("401", "").wantMessagesError(t, 502, "api_error", "upstream_auth")
	if _, err := s.registry.End(t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := r.messages("anthropic", streaming)
	ended.wantMessagesError(t, 410, "invalid_request_error", "session_ended")
	if got := ended.Header.Get("X-Should-Retry"); got != "false" {
		t.Errorf("x-should-retry is %q", got)
	}
}

func TestMessagesStopAtTheirLimits(t *testing.T) {
	s := newMessagesStack(t)
	for condition, limits := range map[string]registry.Limits{
		"max_turns":         {MaxTurns: new(int64(1))},
		"max_input_tokens":  {MaxInputTokens: new(int64(10))},
		"max_output_tokens": {MaxOutputTokens: new(int64(12))},
	} {
		r := s.register(registry.Spec{Limits: limits})
		if got := r.messages("anthropic", streaming); got.StatusCode != 200 {
			t.Errorf("%s: the first call got %d", condition, got.StatusCode)
		}
		r.settle()
		got := r.messages("anthropic", streaming)
		got.wantMessagesError(t, 400, "invalid_request_error", "session_stopped")
		if !strings.Contains(string(got.body), `"stop_condition":"`+condition+`"`) || got.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: got %s, %v", condition, got.body, got.Header)
		}
		r.wantTurns(1)
	}
}

func TestToolCallConditionStopsMessages(t *testing.T) {
	s := newMessagesStack(t)
	for _, extra := range []string{`"tools":[{"name":"now"}]`, streaming + `,"tools":[{"name":"now"}]`} {
		r := s.register(registry.Spec{StopConditions: []registry.StopCondition{{Name: "submitted", ToolCall: "now"}}})
		if got := r.messages("anthropic", extra); got.StatusCode != 200 {
			t.Errorf("the turn that fires got %d", got.StatusCode)
		}
		got := r.messages("anthropic", extra)
		got.wantMessagesError(t, 400, "invalid_request_error", "session_stopped")
		if !strings.Contains(string(got.body), `"stop_condition":"submitted"`) {
			t.Errorf("got %s", got.body)
		}
	}
}

func TestTooLongPromptOfMessagesStopsTheSession(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{})
	got := r.messages("anthropic-context", streaming)
	if want := scripted.Fixture("anthropic/context.json"); got.StatusCode != 400 || !bytes.Equal(got.body, want) {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	next := r.messages("anthropic", "")
	next.wantMessagesError(t, 400, "invalid_request_error", "session_stopped")
	if !strings.Contains(string(next.body), `"stop_condition":"context_length"`) {
		t.Errorf("got %s", next.body)
	}
	r.wantTurns(0, registry.FailureClientError)
}

func TestOverloadAndRateLimitOfMessagesPassUnchanged(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{})
	if got := r.messages("529", streaming); got.StatusCode != 529 || !bytes.Equal(got.body, scripted.Fixture("anthropic/529.json")) {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	got := r.messages("anthropic-429", streaming)
	if got.StatusCode != 429 || got.Header.Get("Retry-After") != "1" || !bytes.Equal(got.body, scripted.Fixture("anthropic/429.json")) {
		t.Errorf("got %d %v %s", got.StatusCode, got.Header, got.body)
	}
	r.wantTurns(0, registry.FailureUpstreamError, registry.FailureRateLimit)
}

// A harness that re-serialises, leaves the reasoning out and moves its cache
// mark still continues its turns, streamed or not.
func TestParentsOfMessagesChainOverToolUse(t *testing.T) {
	s := newMessagesStack(t)
	const tools = `"tools":[{"name":"get_weather"},{"name":"now"}]`
	for _, extra := range []string{tools, streaming + "," + tools} {
		r := s.register(registry.Spec{})
		call := func(messages string) {
			if got := r.do(r.messagesRequest(`{"model":"anthropic","messages":[` + messages + `],` + extra + `}`)); got.StatusCode != 200 {
				t.Fatalf("got %d %s", got.StatusCode, got.body)
			}
		}
		const (
			question = `{"role":"user","content":[{"type":"text","text":"Weather?","cache_control":{"type":"ephemeral"}}]}`
			called   = `{"role":"user","content":"Weather?"},{"content":[{"type":"thinking","thinking":"left out","signature":"s"},{"text":"I'll look both cities up.","type":"text"},` +
				`{"type":"tool_use","name":"get_weather","id":"toolu_01T1x1fJ34qAmk2tNTrN7Up6","input":{ "city": "Paris" }},` +
				`{"type":"tool_use","name":"get_weather","id":"toolu_01D7FLrfh4GYq7yT1ULFeyMV","input":{"city":"K\u00f8benhavn"}},` +
				`{"type":"tool_use","name":"now","id":"toolu_01A09q90qw90lq917835lq9","input":{}}],"role":"assistant"}`
			results = called + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01T1x1fJ34qAmk2tNTrN7Up6","content":"18 °C"}]}`
			done    = results + `,{"role":"assistant","content":"It is 18 °C in Paris and 14 °C in København."},{"role":"user","content":"Thanks"}`
		)
		call(question)
		call(results)
		call(done)
		call(strings.Replace(results, `"Paris"`, `"Rome"`, 1)) // not what the model said
		var parents []int
		for _, turn := range r.turns() {
			parent := -1
			if turn.Parent != nil {
				parent = *turn.Parent
			}
			parents = append(parents, parent)
		}
		if len(parents) != 4 || parents[0] != -1 || parents[1] != 0 || parents[2] != 1 || parents[3] != -1 {
			t.Errorf("%s: the parents are %v, want [-1 0 1 -1]", extra, parents)
		}
	}
}
