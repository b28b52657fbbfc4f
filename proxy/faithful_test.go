package proxy_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

func TestJSONPassesByteForByteBothWays(t *testing.T) {
	s := newStack(t)
	for _, model := range []string{"openai", "openai-tools", "openai-logprobs", "openai-n2", "openai-refusal", "vllm", "sglang", "exact"} {
		r := s.register(registry.Spec{})
		body := "{ \"zeta\" : 12345678901234567890 ,\t\"model\":\"" + model + `","messages":[{"content":"<a> & \u003c \ud800 北😀","role":"user"}],"return_token_ids":true,"chat_template_kwargs":{"x":1.0},"unknown":null}`
		got := r.do(r.request(http.MethodPost, chatPath, body))
		sent := s.model.Last()
		if string(sent.Body) != body {
			t.Errorf("%s: upstream got\n%s\nwant\n%s", model, sent.Body, body)
		}
		direct := s.direct(body)
		if got.StatusCode != 200 || !bytes.Equal(got.body, direct.body) {
			t.Errorf("%s: client got %d\n%s\nwant\n%s", model, got.StatusCode, got.body, direct.body)
		}
		r.wantTurns(1)
		turn := r.turns()[0]
		if string(turn.Request()) != body || !bytes.Equal(turn.Response(), direct.body) {
			t.Errorf("%s: the turn holds other bytes than were sent", model)
		}
		r.settle()
		if d := turn.Delivered(); d == nil || !*d {
			t.Errorf("%s: delivered is %v, want true", model, d)
		}
	}
}

// direct asks the upstream itself.
func (s *stack) direct(body string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.modelURL+chatPath, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(req)
}

func TestStreamsPassByteForByteWhenTheHarnessAsksForUsage(t *testing.T) {
	s := newStack(t)
	for _, model := range []string{
		"openai", "openai-tools", "openai-logprobs", "openai-n2", "openai-refusal", "vllm", "sglang", "exact",
		"stream-crlf", "stream-cr", "stream-mixed", "stream-comments", "stream-ids", "stream-event-lines", "stream-no-space",
		"stream-runes", "stream-bom", "stream-bytewise", "stream-no-done", "stream-no-finish-reason", "stream-no-final-blank", "stream-8mb-line", "gzip-stream",
	} {
		r := s.register(registry.Spec{})
		extra := usageAsked
		if model != "sglang" { // which refuses it in a stream
			extra += `,"return_token_ids":true`
		}
		body := chatBody(model, extra)
		got := r.do(r.request(http.MethodPost, chatPath, body))
		if sent := s.model.Last(); string(sent.Body) != body {
			t.Errorf("%s: upstream got\n%s\nwant\n%s", model, sent.Body, body)
		}
		direct := s.direct(body)
		want := direct.body
		if model == "gzip-stream" {
			want = scripted.Fixture("openai/chat.sse")
			if bytes.Contains(got.body, []byte(`"usage"`)) {
				want = scripted.Fixture("openai/chat-usage.sse")
			}
		}
		if got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("%s: client got %d, %v\n%.2000s\nwant\n%.2000s", model, got.StatusCode, got.err, got.body, want)
			continue
		}
		r.wantTurns(1)
		if turn := r.turns()[0]; !bytes.Equal(turn.Response(), want) || string(turn.Request()) != body {
			t.Errorf("%s: the turn holds other bytes than were sent", model)
		}
	}
}

func TestUsageIsAskedForAndTakenOutAgain(t *testing.T) {
	s := newStack(t)
	for _, model := range []string{"openai", "openai-tools", "openai-logprobs", "openai-n2", "vllm", "sglang"} {
		r := s.register(registry.Spec{})
		body := chatBody(model, streaming)
		got := r.do(r.request(http.MethodPost, chatPath, body))
		want := strings.TrimSuffix(body, "}") + `,"stream_options":{"include_usage":true}}`
		if sent := s.model.Last(); string(sent.Body) != want {
			t.Errorf("%s: upstream got\n%s\nwant\n%s", model, sent.Body, want)
		}
		// SGLang reports "usage":null whether it was asked or not; what the
		// harness would have seen unasked is then not to be known.
		if direct := s.direct(body); model != "sglang" && !bytes.Equal(got.body, direct.body) {
			t.Errorf("%s: client got\n%s\nwant\n%s", model, got.body, direct.body)
		}
		if turns := r.turns(); len(turns) != 1 || turns[0].Usage == nil || turns[0].Usage.InputTokens == 0 || turns[0].Usage.OutputTokens == 0 {
			t.Errorf("%s: the turn lacks its usage", model)
		}
	}
}
