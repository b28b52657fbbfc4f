package proxy_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// wantSent checks the body of the newest request upstream.
func (s *stack) wantSent(body string) {
	s.t.Helper()
	if got := s.model.Last(); string(got.Body) != body || got.ContentLength != int64(len(body)) {
		s.t.Errorf("the upstream got %d bytes\n%s\nwant %d\n%s", got.ContentLength, got.Body, len(body), body)
	}
}

const declined = streaming + `,"stream_options":{"include_usage":false}`

// tokenLimit is one that no test reaches.
func tokenLimit() registry.Spec {
	return registry.Spec{Limits: registry.Limits{MaxTotalTokens: new(int64(1_000_000))}}
}

// R74: who declines usage does not get it, nor does muxproxy.
func TestDeclinedUsageIsNotAskedFor(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		got := r.chat("openai", declined)
		s.wantSent(chatBody("openai", declined))
		if !bytes.Equal(got.body, scripted.Fixture("openai/chat.sse")) {
			s.t.Errorf("got\n%s", got.body)
		}
		if turns := r.turns(); len(turns) != 1 || turns[0].Usage != nil {
			s.t.Errorf("turns are %+v", turns)
		}
	})
}

// R74: unless the session has a token limit, which needs it.
func TestTokenLimitInsistsOnUsage(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(tokenLimit())
		got := r.chat("openai", declined)
		s.wantSent(chatBody("openai", usageAsked))
		if !bytes.Equal(got.body, scripted.Fixture("openai/chat.sse")) {
			s.t.Errorf("the client got\n%s\nwant it without usage", got.body)
		}
		if u := r.session.Summary().Usage; u.InputTokens != 19 || u.OutputTokens != 6 {
			s.t.Errorf("usage is %+v", u)
		}
	})
}

// L24: a token limit stops a session whose harness never asked for usage.
func TestTokenLimitHoldsForStreamsWithoutUsage(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxOutputTokens: new(int64(10))}})
		for range 2 { // of 6 output tokens each
			if got := r.chat("openai", declined); got.StatusCode != 200 {
				s.t.Fatalf("got %d %s", got.StatusCode, got.body)
			}
		}
		got := r.chat("openai", declined)
		got.wantError(s.t, 400, "session_stopped")
		if !strings.Contains(string(got.body), `"stop_condition":"max_output_tokens"`) || got.Header.Get("X-Should-Retry") != "false" {
			s.t.Errorf("got %s", got.body)
		}
		r.wantTurns(2)
	})
}

// R75: an upstream set to never be asked is never asked.
func TestUpstreamThatIsNeverAskedForUsage(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(tokenLimit())
		for _, extra := range []string{streaming, declined, usageAsked} {
			r.chat("openai", extra)
			s.wantSent(chatBody("openai", extra))
		}
		turns := r.turns()
		if len(turns) != 3 || turns[0].Usage != nil || turns[2].Usage == nil {
			s.t.Errorf("turns are %+v", turns)
		}
	}, func(s *settings) { s.upstream.Usage = upstream.UsageNever })
}

// R75: a refused field is left out once, at once, and from then on.
func TestRefusedUsageIsLeftOutFromThenOn(t *testing.T) {
	for _, model := range []string{"refuses-usage", "refuses-usage-422"} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			body := chatBody(model, streaming)
			for i, requests := range []int{2, 1, 1} {
				s.model.Forget()
				got := r.chat(model, streaming)
				if got.StatusCode != 200 || !bytes.Equal(got.body, scripted.Fixture("openai/chat.sse")) {
					s.t.Errorf("%s: got %d\n%s", model, got.StatusCode, got.body)
				}
				s.wantSent(body)
				if n := len(s.model.Requests()); n != requests {
					s.t.Errorf("%s: call %d took %d requests, want %d", model, i, n, requests)
				}
			}
			r.wantTurns(3)
			if got := string(r.turns()[0].Request()); got != body {
				s.t.Errorf("%s: the turn's request is\n%s\nwant what was answered\n%s", model, got, body)
			}
			s.wantIdle()
		})
	}
}

// R75: a refusal of the harness's own wish is its own, and nobody else's.
func TestRefusedUsageOfTheHarnessIsPassedOn(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		got := r.chat("refuses-usage", usageAsked)
		if got.StatusCode != 400 || !bytes.Equal(got.body, scripted.Fixture("errors/stream-options.json")) {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		if n := len(s.model.Requests()); n != 1 {
			s.t.Errorf("the upstream got %d requests, want 1", n)
		}
		// stream_options of its own, to which muxproxy adds: the upstream refuses
		// both ways, so that what muxproxy added was not the reason.
		got = r.chat("refuses-usage", streaming+`,"stream_options":{"bogus":1}`)
		if got.StatusCode != 400 {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		r.wantTurns(0, registry.FailureClientError, registry.FailureClientError)
		r.chat("openai", streaming)
		s.wantSent(chatBody("openai", usageAsked))
		s.wantIdle()
	})
}

// R75: a 4xx about something else is passed on whole, after one call.
func TestOtherRefusalOfARequestWithUsageIsPassedOn(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for model, fixture := range map[string]string{
			"404": "errors/404.json", "404-vllm": "errors/404-vllm.json", "403": "errors/403.json", "429": "errors/429.json", "gzip-error": "errors/404.json",
		} {
			s.model.Forget()
			got := r.chat(model, streaming)
			if want := scripted.Fixture(fixture); !bytes.Equal(got.body, want) || got.Header.Get("Content-Type") != "application/json" {
				s.t.Errorf("%s: got %d %q", model, got.StatusCode, got.body)
			}
			if n := len(s.model.Requests()); n != 1 {
				s.t.Errorf("%s: the upstream got %d requests", model, n)
			}
		}
		r.chat("openai", streaming)
		s.wantSent(chatBody("openai", usageAsked)) // nothing was concluded from them
		s.wantIdle()
	})
}

// R76: the usage chunk goes to who asked for it; its counts are the turn's.
func TestUsageChunkIsReadAndPassedToWhoAsked(t *testing.T) {
	bubble(t, func(s *stack) {
		for model, want := range map[string]struct {
			fixture string
			usage   registry.Usage
		}{
			"openai": {"openai/chat", registry.Usage{InputTokens: 19, OutputTokens: 6}},
			"sglang": {"sglang/chat", registry.Usage{InputTokens: 9, OutputTokens: 8}},
		} {
			r := s.register(registry.Spec{})
			if got := r.chat(model, usageAsked); !bytes.Equal(got.body, scripted.Fixture(want.fixture+"-usage.sse")) {
				s.t.Errorf("%s: got\n%s", model, got.body)
			}
			if turns := r.turns(); len(turns) != 1 || turns[0].Usage == nil || *turns[0].Usage != want.usage {
				s.t.Errorf("%s: turns are %+v", model, turns)
			}
		}
	})
}

// R15: usage is found and taken out whatever ends the lines.
func TestUsageIsTakenOutOfAnyFraming(t *testing.T) {
	bubble(t, func(s *stack) {
		lf := scripted.Fixture("openai/chat-usage.sse")
		plain := scripted.Fixture("openai/chat.sse")
		for name, reframe := range map[string]func([]byte) []byte{
			"crlf":     func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) },
			"no space": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("data: "), []byte("data:")) },
			"event":    func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("data: "), []byte("event: message\ndata: ")) },
			"comments": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("data: "), []byte(": x\ndata: ")) },
			"no end":   func(b []byte) []byte { return bytes.TrimSuffix(b, []byte("\n")) },
		} {
			s.model.Script("framed", scripted.SSE(reframe(lf)))
			r := s.register(registry.Spec{})
			if got, want := r.chat("framed", streaming), reframe(plain); !bytes.Equal(got.body, want) || got.err != nil {
				s.t.Errorf("%s: got %v\n%s\nwant\n%s", name, got.err, got.body, want)
			}
			if turns := r.turns(); len(turns) != 1 || turns[0].Usage == nil || turns[0].Usage.InputTokens != 19 || !bytes.Equal(turns[0].Response(), reframe(lf)) {
				s.t.Errorf("%s: the turn is not what came", name)
			}
		}
	})
}

// R75, n=2: the usage of several choices is one chunk, and taken out.
func TestUsageOfTwoChoicesIsTakenOut(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		if got := r.chat("openai", streaming+`,"n":2`); !bytes.Equal(got.body, scripted.Fixture("openai/n2.sse")) {
			s.t.Errorf("got\n%s", got.body)
		}
		turns := r.turns()
		if len(turns) != 1 || turns[0].Usage == nil || len(turns[0].Choices) != 2 {
			s.t.Fatalf("turns are %+v", turns)
		}
		for i, choice := range turns[0].Choices {
			if choice.Index != i || choice.FinishReason == "" || choice.Continuation == 0 {
				s.t.Errorf("choice %d is %+v", i, choice)
			}
		}
	})
}

// n=2: a stream in which one choice never finished is not whole.
func TestStreamThatLacksOneOfTwoChoicesIsATruncation(t *testing.T) {
	bubble(t, func(s *stack) {
		stream := bytes.TrimSuffix(scripted.Fixture("openai/n2.sse"), []byte(doneEvent))
		for _, n := range []int{1, 2} {
			cut := events(stream, bytes.Count(stream, []byte("\n\n"))-n)
			s.model.Script("cut", scripted.SSE(cut))
			r := s.register(registry.Spec{})
			got := r.chat("cut", usageAsked+`,"n":2`)
			got.wantBroken(s.t, cut, "upstream_invalid")
			r.wantTurns(0, registry.FailureUpstreamTruncated)
		}
	})
}

// Continuous usage that the harness asked for stays, and the last one counts.
func TestContinuousUsageStaysForWhoAskedForIt(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		extra := streaming + `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
		got := r.chat("vllm", extra)
		s.wantSent(chatBody("vllm", extra))
		if !bytes.Equal(got.body, scripted.Fixture("vllm/chat-continuous.sse")) {
			s.t.Errorf("got\n%s", got.body)
		}
		if turns := r.turns(); len(turns) != 1 || turns[0].Usage == nil || turns[0].Usage.OutputTokens < 2 {
			s.t.Errorf("turns are %+v", turns)
		}
	})
}

// Other stream options are kept beside the one that is added.
func TestOtherStreamOptionsAreKept(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for sent, want := range map[string]string{
			`"stream_options":{}`:                                          `"stream_options":{"include_usage":true}`,
			`"stream_options":null`:                                        `"stream_options":{"include_usage":true}`,
			`"stream_options": {"x" : 1.0}`:                                `"stream_options": {"x" : 1.0,"include_usage":true}`,
			`"stream_options":{"include_usage":null,"x":1}`:                `"stream_options":{"include_usage":true,"x":1}`,
			`"stream_options":{"include_obfuscation":false},"stop":["\n"]`: `"stream_options":{"include_obfuscation":false,"include_usage":true},"stop":["\n"]`,
		} {
			r.chat("openai", streaming+","+sent)
			s.wantSent(chatBody("openai", streaming+","+want))
		}
	})
}

// What is no stream is not edited.
func TestRequestWithoutAStreamIsNotAskedForUsage(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(tokenLimit())
		for _, extra := range []string{"", `"stream":false`, `"stream":null`} {
			r.chat("openai", extra)
			s.wantSent(chatBody("openai", extra))
		}
	})
}
