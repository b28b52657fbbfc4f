package proxy_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func style(style upstream.Style) func(*settings) {
	return func(s *settings) { s.upstream.Style = style }
}

func capturing() registry.Spec {
	return registry.Spec{Capture: registry.Capture{TokenIDs: true, Logprobs: true}}
}

// R80, L51: the trace has the tokens, the harness what it would have seen.
func TestCapturedTokensAreRecordedAndNotSeen(t *testing.T) {
	for _, test := range []struct {
		style           upstream.Style
		path, body      string
		recorded, shown string
	}{
		{upstream.StyleVLLM, chatPath, chatBody("vllm", ""), "vllm/chat-ids-logprobs.json", "vllm/chat.json"},
		{upstream.StyleVLLM, chatPath, chatBody("vllm", streaming), "vllm/chat-ids-logprobs-usage.sse", "vllm/chat.sse"},
		{upstream.StyleVLLM, chatPath, chatBody("vllm", usageAsked+`,"logprobs":true`), "vllm/chat-ids-logprobs-usage.sse", "vllm/chat-logprobs-usage.sse"},
		{upstream.StyleVLLM, chatPath, chatBody("vllm", `"return_token_ids":true`), "vllm/chat-ids-logprobs.json", "vllm/chat-ids.json"},
		{upstream.StyleVLLM, "/v1/completions", `{"model":"vllm","prompt":"Hello,"}`, "vllm/completions-ids-logprobs.json", "vllm/completions.json"},
		{upstream.StyleVLLM, "/v1/completions", `{"model":"vllm","prompt":"Hello,","stream":true}`, "vllm/completions-ids-logprobs-usage.sse", "vllm/completions.sse"},
		{upstream.StyleSGLang, chatPath, chatBody("sglang", ""), "sglang/chat-ids-logprobs.json", "sglang/chat.json"},
		{upstream.StyleSGLang, chatPath, chatBody("sglang", usageAsked), "sglang/chat-logprobs-usage.sse", "sglang/chat-usage.sse"},
		{upstream.StyleSGLang, "/v1/completions", `{"model":"sglang","prompt":"Hello,",` + usageAsked + `}`, "sglang/completions-ids-logprobs-usage.sse", "sglang/completions-usage.sse"},
		{upstream.StyleOpenAI, chatPath, chatBody("vllm", streaming), "vllm/chat-logprobs-usage.sse", "vllm/chat.sse"},
	} {
		s := newStack(t, style(test.style))
		r := s.register(capturing())
		got := r.do(r.request(http.MethodPost, test.path, test.body))
		if want := scripted.Fixture(test.shown); got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("%s: the harness got %d %v\n%s\nwant\n%s", test.recorded, got.StatusCode, got.err, got.body, want)
		}
		turn := r.turns()[0]
		if !bytes.Equal(turn.Response(), scripted.Fixture(test.recorded)) || dialect.AddedOf(turn.Added) == (dialect.Added{}) {
			t.Errorf("%s: the turn, with %b added, holds\n%s", test.recorded, turn.Added, turn.Response())
		}
		retry := r.request(http.MethodPost, test.path, test.body)
		retry.Header.Set("X-Stainless-Retry-Count", "1")
		if again := r.do(retry); !bytes.Equal(again.body, got.body) || len(s.model.Requests()) != 1 {
			t.Errorf("%s: a retry got\n%s\nwant what was answered first", test.recorded, again.body)
		}
	}
}

func TestHarnessThatSaysNothingOfTokensIsAskedForNothing(t *testing.T) {
	s := newStack(t, style(upstream.StyleVLLM))
	r := s.register(registry.Spec{})
	r.chat("vllm", "")
	s.wantSent(chatBody("vllm", ""))
	if got := r.turns()[0].Added; got != 0 {
		t.Errorf("the turn has %b added", got)
	}
}

// R75: an upstream that does not know a field is asked without it, at once and
// from then on, and for what it does know.
func TestRefusedTokensAreNotAskedForAgain(t *testing.T) {
	for model, left := range map[string]string{"refuses-token-ids": `"logprobs":true`, "refuses-logprobs": `"return_token_ids":true`} {
		bubble(t, func(s *stack) {
			r := s.register(capturing())
			for i, requests := range []int{2, 1} {
				s.model.Forget()
				if got := r.chat(model, ""); got.StatusCode != 200 {
					s.t.Errorf("%s: got %d\n%s", model, got.StatusCode, got.body)
				}
				s.wantSent(chatBody(model, left))
				if n := len(s.model.Requests()); n != requests {
					s.t.Errorf("%s: call %d took %d requests, want %d", model, i, n, requests)
				}
			}
			r.wantTurns(2)
		}, style(upstream.StyleVLLM))
	}
}

// Two fields that are refused one after the other cost two more requests.
func TestEverythingThatWasAddedMayBeRefused(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Func("plain", func(r *scripted.Request) scripted.Script {
			for _, field := range []string{"stream_options", "return_token_ids", "logprobs"} {
				if strings.Contains(string(r.Body), field) {
					return scripted.Error(400, []byte(`{"error":{"message":"unknown argument `+field+`"}}`))
				}
			}
			return scripted.SSE(scripted.Fixture("openai/chat.sse"))
		})
		r := s.register(capturing())
		for _, requests := range []int{4, 1} {
			s.model.Forget()
			if got := r.chat("plain", streaming); got.StatusCode != 200 || !bytes.Equal(got.body, scripted.Fixture("openai/chat.sse")) {
				s.t.Errorf("got %d\n%s", got.StatusCode, got.body)
			}
			if n := len(s.model.Requests()); n != requests {
				s.t.Errorf("the call took %d requests, want %d", n, requests)
			}
		}
		r.wantTurns(2)
	}, style(upstream.StyleVLLM))
}
