package proxy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// limited is a stack behind a public side that waits a minute for a header.
func limited(s *settings) { s.proxy.HeaderLimit = time.Minute }

// later makes the upstream answer only after so long.
func (s *stack) later(model string, script scripted.Script, delay time.Duration) scripted.Script {
	script.Delay = delay
	s.model.Script(model, script)
	return script
}

func TestSlowJSONAnswerBeginsBeforeTheLimitOfItsTunnel(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.later("slow", scripted.JSON(scripted.Fixture("openai/chat.json")), 3*time.Minute)
		r := s.register(registry.Spec{})
		began := time.Now()
		l := r.open("slow", "")
		if took := time.Since(began); took != 45*time.Second {
			s.t.Errorf("the header came after %s, want 45s", took)
		}
		if l.StatusCode != http.StatusOK || l.Header.Get("Content-Type") != "application/json" || l.Header.Get("X-Muxproxy-Server") != "nonce-1" || l.Header.Get("X-Request-Id") == "" {
			s.t.Errorf("got status %d, header %v", l.StatusCode, l.Header)
		}
		body, err := l.rest()
		if spaces := len(body) - len(script.Body); err != nil || strings.TrimLeft(body, " ") != string(script.Body) || spaces < 40 || spaces > 50 {
			s.t.Errorf("got %v, %d spaces and\n%s", err, spaces, body)
		}
		r.wantTurns(1)
		if turn := r.turns()[0]; !bytes.Equal(turn.Response(), script.Body) {
			s.t.Errorf("the turn holds %q", turn.Response())
		}
		s.wantLogged(logged{Outcome: "ok", Status: 200})
	}, limited)
}

func TestSlowStreamBeginsBeforeTheLimitOfItsTunnel(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.later("slow", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")), 2*time.Minute)
		r := s.register(registry.Spec{})
		began := time.Now()
		l := r.open("slow", usageAsked)
		if took := time.Since(began); took != 45*time.Second || !strings.HasPrefix(l.Header.Get("Content-Type"), "text/event-stream") || l.Header.Get("X-Accel-Buffering") != "no" {
			s.t.Errorf("after %s got header %v", took, l.Header)
		}
		for i := range 3 {
			if line := l.line(); line != keepaliveLine || time.Since(began) != 45*time.Second+time.Duration(i)*3*time.Second {
				s.t.Fatalf("line %d is %q after %s", i, line, time.Since(began))
			}
		}
		body, err := l.rest()
		if err != nil || strings.ReplaceAll(body, keepaliveLine, "") != string(script.Body) {
			s.t.Errorf("got %v\n%s", err, body)
		}
		r.wantTurns(1)
	}, limited)
}

// What is quick, or has begun by itself, is as it is without a limit.
func TestLimitOfATunnelChangesNoOtherAnswer(t *testing.T) {
	bubble(t, func(s *stack) {
		json := scripted.JSON(scripted.Fixture("openai/chat.json"))
		json.Header.Set("X-Ratelimit-Remaining-Requests", "7")
		s.later("quick", json, 44*time.Second)
		r := s.register(registry.Spec{})
		got := r.chat("quick", "")
		if got.err != nil || !bytes.Equal(got.body, json.Body) || got.Header.Get("X-Ratelimit-Remaining-Requests") != "7" || got.ContentLength != int64(len(json.Body)) {
			s.t.Errorf("got %v, %v\n%s", got.err, got.Header, got.body)
		}
		stream := s.slow("prefill", "openai/chat-usage.sse", 20*time.Second)
		if got := r.chat("prefill", usageAsked); strings.ReplaceAll(string(got.body), keepaliveLine, "") != string(stream.Body) {
			s.t.Errorf("got\n%s", got.body)
		}
		busy := scripted.JSON([]byte(`{"error":{"message":"busy"}}`))
		busy.Status = http.StatusTooManyRequests
		busy.Header.Set("Retry-After", "9")
		s.model.Script("busy", busy)
		if got := r.chat("busy", streaming); got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") != "9" {
			s.t.Errorf("got %d %v", got.StatusCode, got.Header)
		}
		r.wantTurns(2, registry.FailureRateLimit)
	}, limited)
}

// A 200 that has begun must not end like an answer when there is none.
func TestFailureAfterAnEarlyBeginningBreaksTheAnswer(t *testing.T) {
	busy := scripted.JSON([]byte(`{"error":{"message":"try another day"}}`))
	busy.Status = http.StatusTooManyRequests
	refused := scripted.JSON([]byte(`{}`))
	refused.Status = http.StatusUnauthorized
	bubble(t, func(s *stack) {
		s.later("busy", busy, 50*time.Second)
		s.later("refused", refused, 50*time.Second)
		for _, test := range []struct{ model, code, says string }{
			{"busy", "upstream_error", "try another day"},
			{"refused", "upstream_auth", "credential"},
		} {
			r := s.register(registry.Spec{})
			got := r.chat(test.model, "")
			var body struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(got.body, &body); err != nil || got.err == nil || got.StatusCode != http.StatusOK || body.Error.Code != test.code || !strings.Contains(body.Error.Message, test.says) {
				s.t.Errorf("%s: got %d, %v, %s", test.model, got.StatusCode, got.err, got.body)
			}
			stream := r.chat(test.model, streaming)
			events := strings.ReplaceAll(string(stream.body), keepaliveLine, "")
			if stream.err == nil || !strings.HasPrefix(events, `data: {"error":`) || !strings.Contains(events, test.says) || !strings.HasSuffix(events, "\n\n") {
				s.t.Errorf("%s: got %v, %q", test.model, stream.err, events)
			}
			r.settle()
			if trace := r.trace(); len(trace.Turns) != 0 || len(trace.FailedCalls) != 2 {
				s.t.Errorf("%s: the trace has %d turns and %d failed calls, want none and two", test.model, len(trace.Turns), len(trace.FailedCalls))
			}
			s.wantLogged(logged{Status: 200})
		}
		s.wantIdle()
	}, limited)
}

// An answer in the other form than what was begun cannot go on from there.
func TestAnswerOfAnotherFormThanWhatWasBegunBreaks(t *testing.T) {
	bubble(t, func(s *stack) {
		s.later("no-stream", scripted.JSON(scripted.Fixture("openai/chat.json")), 50*time.Second)
		s.later("stream", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")), 50*time.Second)
		r := s.register(registry.Spec{})
		for model, extra := range map[string]string{"no-stream": streaming, "stream": ""} {
			got := r.chat(model, extra)
			if rest := strings.Trim(strings.ReplaceAll(string(got.body), keepaliveLine, ""), " "); got.err == nil || rest != "" {
				s.t.Errorf("%s: got %v, %q; want a broken answer", model, got.err, rest)
			}
		}
	}, limited)
}

func TestEarlyBeginningWithoutKeepalivesIsOneMark(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.later("slow", scripted.JSON(scripted.Fixture("openai/chat.json")), 3*time.Minute)
		if got := s.register(registry.Spec{}).chat("slow", ""); string(got.body) != " "+string(script.Body) {
			s.t.Errorf("got %q", got.body)
		}
	}, limited, func(s *settings) { s.proxy.Keepalive = -1 })
}

// The call's own answer may begin at the very moment.
func TestAnswersBeginOnceAtTheMomentOfTheLimit(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.later("slow", scripted.JSON(scripted.Fixture("openai/chat.json")), 45*time.Second)
		r := s.register(registry.Spec{})
		done := make(chan answer)
		const many = 32
		for range many {
			go func() { done <- r.chat("slow", "") }()
		}
		for range many {
			if got := <-done; got.err != nil || strings.TrimLeft(string(got.body), " ") != string(script.Body) {
				s.t.Errorf("got %v, %q", got.err, got.body)
			}
		}
		r.settle()
		r.wantTurns(many)
	}, limited)
}

func TestClientThatLeavesAnEarlyAnswerEndsItsCall(t *testing.T) {
	bubble(t, func(s *stack) {
		s.later("slow", scripted.JSON(scripted.Fixture("openai/chat.json")), 10*time.Minute)
		r := s.register(registry.Spec{})
		r.open("slow", "").close()
		s.wantIdle()
		r.wantTurns(0, registry.FailureClientDisconnected)
		s.wantLogged(logged{Outcome: "client_disconnected"})
	}, limited)
}

// What is passed through keeps its status and header, and so does not begin before it
// is known. The tunnel would answer by itself, with a page that says nothing.
func TestWhatIsPassedThroughIsAnsweredBeforeTheLimitOfItsTunnel(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		busy := scripted.JSON([]byte(`{"error":{"message":"busy"}}`))
		busy.Status = http.StatusTooManyRequests
		busy.Header.Set("Retry-After", "9")
		s.later("slow", busy, 53*time.Second)
		if got := r.do(r.request(http.MethodPost, "/v1/embeddings", `{"model":"slow"}`)); got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") != "9" || !bytes.Equal(got.body, busy.Body) {
			s.t.Errorf("got %d, %v, %s", got.StatusCode, got.Header, got.body)
		}
		s.later("slower", scripted.JSON([]byte(`{"input_tokens":3}`)), 2*time.Minute)
		drip := scripted.JSON([]byte(`{"input_tokens":3}`))
		drip.Cut, drip.Gap = scripted.Bytes, 4*time.Second
		s.model.Script("drip", drip)
		for _, path := range []string{"/v1/embeddings", "/v1/messages/count_tokens"} {
			for _, model := range []string{"slower", "drip"} {
				began := time.Now()
				got := r.do(r.request(http.MethodPost, path, `{"model":"`+model+`"}`))
				got.wantTimeout(s.t, "tunnel header budget of 1m0s")
				if took := time.Since(began); took != 54*time.Second {
					s.t.Errorf("%s: it took %s", path, took)
				}
				synctest.Wait()
				if _, canceled := s.model.Last().Canceled(); !canceled {
					s.t.Error("the upstream was not told")
				}
			}
		}
		s.wantLogged(logged{Outcome: "upstream_timeout", Status: http.StatusGatewayTimeout})
	}, limited)
}

// The tunnel does not know what a call waits for: the time that its body waited for
// room counts.
func TestTimeThatABodyWaitedForRoomIsOfTheLimitOfItsTunnel(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("silent", hanging())
		s.later("slow", scripted.JSON(scripted.Fixture("openai/chat.json")), 3*time.Minute)
		r := s.register(registry.Spec{})
		for _, test := range []struct {
			path, body string
			want       time.Duration
		}{{chatPath, chatBody("slow", ""), 45 * time.Second}, {"/v1/embeddings", `{"model":"slow","input":"` + strings.Repeat("a", 90) + `"}`, 54 * time.Second}} {
			held := strings.TrimSuffix(strings.Replace(bodyOf(900), "openai", "silent", 1), "}") + `,"stream":true}`
			gone := r.leaveOnce(abandonable(r.request(http.MethodPost, chatPath, held)))
			time.AfterFunc(20*time.Second, gone)
			began := time.Now()
			l := r.openRequest(r.request(http.MethodPost, test.path, test.body))
			if took := time.Since(began); took != test.want {
				s.t.Errorf("%s: the header came after %s, want %s", test.path, took, test.want)
			}
			l.leave()
			s.wantIdle()
		}
	}, limited, func(s *settings) { s.proxy.MaxInflightBytes, s.proxy.AdmitTimeout = 950, 30*time.Second })
}
