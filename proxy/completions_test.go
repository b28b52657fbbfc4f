package proxy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// complete makes a call of text completions.
func (r *rollout) complete(body string) answer {
	r.t.Helper()
	return r.do(r.request(http.MethodPost, "/v1/completions", body))
}

// R85: token ids and echo go up as they are, answers come down so.
func TestCompletionsPassByteForByteBothWays(t *testing.T) {
	s := newStack(t)
	for body, fixture := range map[string]string{
		`{ "model":"openai", "prompt" : "a\u003c<" ,"echo":true,"zeta":12345678901234567890}`:                             "openai/completions.json",
		`{"model":"openai","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true}}`:                         "openai/completions-usage.sse",
		`{"model":"vllm","prompt":[[1],[2]],"return_token_ids":true,"logprobs":1}`:                                        "vllm/completions-ids-logprobs.json",
		`{"model":"sglang","prompt":["a"],"return_token_ids":true,"stream":true,"stream_options":{"include_usage":true}}`: "sglang/completions-ids-usage.sse",
	} {
		r := s.register(registry.Spec{})
		got := r.complete(body)
		want := scripted.Fixture(fixture)
		if sent := s.model.Last(); string(sent.Body) != body || sent.Path != "/v1/completions" {
			t.Errorf("upstream got %s\n%s\nwant\n%s", sent.Path, sent.Body, body)
		}
		if got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("%s: client got %d, %v\n%s", fixture, got.StatusCode, got.err, got.body)
		}
		r.wantTurns(1)
		turn := r.turns()[0]
		if string(turn.Request()) != body || !bytes.Equal(turn.Response(), want) || turn.Dialect != "completions" || turn.Usage == nil || turn.Usage.OutputTokens == 0 {
			t.Errorf("%s: the turn is %+v", fixture, turn)
		}
	}
}

func TestUsageThatOnlyMuxproxyAsksOfCompletionsIsTakenOut(t *testing.T) {
	s := newStack(t)
	for model, fixture := range map[string]string{"openai": "openai/completions.sse", "vllm": "vllm/completions.sse"} {
		r := s.register(registry.Spec{})
		got := r.complete(`{"model":"` + model + `","prompt":"Hello,","stream":true}`)
		if !bytes.Equal(got.body, scripted.Fixture(fixture)) {
			t.Errorf("%s: client got\n%s", model, got.body)
		}
		if u := r.turns()[0].Usage; u == nil || u.InputTokens != 2 {
			t.Errorf("%s: usage is %+v", model, u)
		}
	}
}

func TestCompletionsThatGoOnShowTheirParents(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for i, call := range []struct {
		body   string
		parent int
	}{
		{`{"model":"openai","prompt":"Hello,"}`, -1}, // " world."
		{`{"model":"openai","prompt":"Hello, world.\n"}`, 0},
		{`{"model":"openai","prompt":"Hello, world.","stream":true}`, 0},
		{`{"model":"openai","prompt":"Hello, world.\n world. Bye"}`, 1},
		{`{"model":"openai","prompt":"Hello, there"}`, -1},
		{`{"model":"vllm","prompt":[9707,11],"return_token_ids":true,"stream":true}`, -1},
		{`{"model":"vllm","prompt":[9707,11,4969,507,13,151645,1],"return_token_ids":true}`, 5},
	} {
		r.complete(call.body)
		turn := r.turns()[i]
		got := -1
		if turn.Parent != nil {
			got = *turn.Parent
		}
		if got != call.parent {
			t.Errorf("turn %d, %s, has the parent %d, want %d", i, call.body, got, call.parent)
		}
	}
}

func TestCompletionsFailInTheShapeOfTheirAPI(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	r.complete(`{"model":"openai"}`).wantError(t, 400, "invalid_request")
	for model, kind := range map[string]registry.FailureKind{
		"stream-error-after-text-done": registry.FailureUpstreamError,
		"stream-no-terminal":           registry.FailureUpstreamTruncated,
		"sglang-abort":                 registry.FailureAborted,
	} {
		r := s.register(registry.Spec{})
		got := r.complete(`{"model":"` + model + `","prompt":"a","stream":true}`)
		r.settle()
		r.wantTurns(0, kind)
		if clean := kind == registry.FailureUpstreamError; (got.err == nil) != clean {
			t.Errorf("%s: the stream ended with %v", model, got.err)
		}
	}
}

func TestStopConditionsReadTheTextOfCompletions(t *testing.T) {
	s := newStack(t)
	spec := func(expression string) registry.Spec {
		return registry.Spec{StopConditions: []registry.StopCondition{{Name: "found", TextRegexp: regexp.MustCompile(expression)}}}
	}
	r := s.register(spec(`world`))
	r.complete(`{"model":"openai","prompt":"a"}`)
	if got := r.session.Summary().StopCondition; got != "found" {
		t.Errorf("the session stopped under %q", got)
	}
	echo, err := json.Marshal(map[string]any{"model": "echo", "prompt": "say stop", "echo": true})
	if err != nil {
		t.Fatal(err)
	}
	s.model.Script("echo", scripted.JSON([]byte(`{"choices":[{"index":0,"text":"say stop, he said","finish_reason":"stop"}]}`)))
	r = s.register(spec(`stop`))
	r.complete(string(echo))
	if got := r.session.Summary().StopCondition; got != "" {
		t.Errorf("the prompt stopped the session under %q", got)
	}
}
