package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

const stopEvent = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

// anthropicUpstream makes the upstream one of that style.
func anthropicUpstream(s *settings) { s.upstream.Style = upstream.StyleAnthropic }

// newMessagesStack is a stack whose upstream knows the scripts of the Messages API.
func newMessagesStack(t *testing.T, change ...func(*settings)) *stack {
	t.Helper()
	s := newStack(t, append(change, anthropicUpstream)...)
	s.model.AddAnthropic()
	return s
}

func messagesBubble(t *testing.T, test func(s *stack)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newMessagesStack(t, inMemory)) })
}

// messagesRequest is a call of the model that plays a script as Anthropic's SDKs make it.
func (r *rollout) messagesRequest(body string) *http.Request {
	r.t.Helper()
	req := r.request(http.MethodPost, messagesPath, body)
	req.Header.Del("Authorization")
	req.Header.Set("X-Api-Key", r.secret)
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return req
}

func (r *rollout) messages(model, extra string) answer {
	r.t.Helper()
	return r.do(r.messagesRequest(chatBody(model, extra)))
}

// openMessages makes a streaming call and returns when its header is there.
func (r *rollout) openMessages(model string) *live {
	r.t.Helper()
	req, leave := abandonable(r.messagesRequest(chatBody(model, streaming)))
	res, err := r.client.Do(req) //nolint:bodyclose // it is closed with the test
	if err != nil {
		leave()
		r.t.Fatal(err)
	}
	l := &live{res, r.t, leave, bufio.NewReaderSize(res.Body, 64<<10)}
	r.t.Cleanup(l.close)
	return l
}

// wantMessagesError checks an error of muxproxy's own in Anthropic's shape.
func (a answer) wantMessagesError(t *testing.T, status int, kind, code string) {
	t.Helper()
	var body struct {
		Type  string
		Error struct{ Type, Message, Code string }
	}
	if err := json.Unmarshal(a.body, &body); err != nil || a.StatusCode != status ||
		body.Type != "error" || body.Error.Type != kind || body.Error.Code != code || body.Error.Message == "" {
		t.Errorf("got status %d, body %s; want status %d, type %s, code %s", a.StatusCode, a.body, status, kind, code)
	}
}

// wantMessagesBroken checks that a stream does not look whole: after what the
// upstream had sent comes one error event, no message_stop, a torn connection.
func (a answer) wantMessagesBroken(t *testing.T, received []byte, code string) {
	t.Helper()
	rest, ok := bytes.CutPrefix(a.body, received)
	if !ok {
		t.Fatalf("client got\n%s\nwhich does not start with what the upstream sent\n%s", a.body, received)
	}
	if bytes.Contains(a.body, []byte("message_stop")) {
		t.Errorf("a broken stream has a message_stop:\n%s", a.body)
	}
	if a.err == nil {
		t.Error("a broken stream ended cleanly")
	}
	event := string(rest)
	if !strings.HasPrefix(event, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":") || !strings.HasSuffix(event, "}\n\n") ||
		strings.Count(event, "\n\n") != 1 || !strings.Contains(event, `"code":"`+code+`"`) {
		t.Errorf("the stream breaks off with %q, want one error event with code %s", event, code)
	}
}

// R25, R79: events keep their names, and none is added.
func TestMessagesPassByteForByteBothWays(t *testing.T) {
	s := newMessagesStack(t)
	for model, fixture := range map[string]string{
		"anthropic": "message", "anthropic-thinking": "thinking", "anthropic-max-tokens": "max-tokens",
		"anthropic-server-tools": "server-tools", "anthropic-unknown": "unknown",
	} {
		for suffix, extra := range map[string]string{".json": `"stream" : false`, ".sse": streaming} {
			r := s.register(registry.Spec{})
			body := "{ \"zeta\" : 12345678901234567890 ,\t\"model\":\"" + model + `","max_tokens":64,"system":[{"type":"text","text":"<a> & \u003c \ud800"}],"messages":[{"content":"北😀","role":"user"}],` + extra + `}`
			got := r.do(r.messagesRequest(body))
			if sent := s.model.Last(); string(sent.Body) != body || sent.Path != messagesPath {
				t.Errorf("%s: upstream got %s\n%s\nwant\n%s", model, sent.Path, sent.Body, body)
			}
			want := scripted.Fixture("anthropic/" + fixture + suffix)
			if got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
				t.Errorf("%s: client got %d, %v\n%s\nwant\n%s", fixture+suffix, got.StatusCode, got.err, got.body, want)
			}
			r.wantTurns(1)
			turn := r.turns()[0]
			if string(turn.Request()) != body || !bytes.Equal(turn.Response(), want) || turn.Dialect != "messages" {
				t.Errorf("%s: the turn is of dialect %s or holds other bytes than were sent", fixture+suffix, turn.Dialect)
			}
			if turn.Usage == nil || turn.Usage.InputTokens == 0 || turn.Usage.OutputTokens == 0 {
				t.Errorf("%s: the turn has usage %+v", fixture+suffix, turn.Usage)
			}
			r.settle()
			if d := turn.Delivered(); d == nil || !*d {
				t.Errorf("%s: delivered is %v, want true", fixture+suffix, d)
			}
		}
	}
}

// R66, L59: both ways in which Claude Code and the SDKs carry a key.
func TestMessagesTakeTheSecretFromEitherHeader(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{})
	for _, name := range []string{"X-Api-Key", "Authorization"} {
		req := r.messagesRequest(chatBody("anthropic", ""))
		req.Header.Del("X-Api-Key")
		req.Header.Set(name, map[string]string{"X-Api-Key": r.secret, "Authorization": "Bearer " + r.secret}[name])
		if got := r.do(req); got.StatusCode != 200 {
			t.Errorf("%s: got %d %s", name, got.StatusCode, got.body)
		}
		if head := string(s.model.Last().Head); strings.Contains(head, r.secret) {
			t.Errorf("the secret went up:\n%s", head)
		}
	}
	r.wantTurns(2)
}

func TestMessagesUpstreamGetsItsCredentialAndTheVersionHeaders(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{})
	req := r.messagesRequest(chatBody("anthropic", ""))
	req.URL.RawQuery = "beta=true"
	req.Header.Set("Anthropic-Version", "2030-01-01")
	req.Header.Set("Anthropic-Beta", "interleaved-thinking-2025-05-14,context-1m-2025-08-07")
	got := r.do(req)
	sent := s.model.Last()
	for name, want := range map[string]string{
		"X-Api-Key": upstreamKey, "Authorization": "", "Anthropic-Version": "2030-01-01",
		"Anthropic-Beta": "interleaved-thinking-2025-05-14,context-1m-2025-08-07",
	} {
		if v := sent.Header.Get(name); v != want {
			t.Errorf("%s went up as %q, want %q", name, v, want)
		}
	}
	if sent.RawQuery != "beta=true" {
		t.Errorf("the query went up as %q", sent.RawQuery)
	}
	if got.Header.Get("Request-Id") != "req_018EeWyXxfu5pfWkrYcMdjWG" || got.Header.Get("Anthropic-Ratelimit-Requests-Remaining") != "49" {
		t.Errorf("the answer's header is %v", got.Header)
	}
	if id := r.turns()[0].UpstreamRequestID; id != "req_018EeWyXxfu5pfWkrYcMdjWG" {
		t.Errorf("the turn has the upstream's request id %q", id)
	}

	req = r.messagesRequest(chatBody("anthropic", ""))
	req.Header.Del("Anthropic-Version")
	r.do(req)
	if v := s.model.Last().Header.Get("Anthropic-Version"); v != "2023-06-01" {
		t.Errorf("the version is %q when the harness sends none", v)
	}
}

func TestMessagesOverridesReachTheUpstream(t *testing.T) {
	s := newMessagesStack(t)
	r := s.register(registry.Spec{Model: "anthropic", Sampling: map[string]json.RawMessage{"max_completion_tokens": json.RawMessage("9")}})
	r.messages("claude", `"max_tokens":64,"stream":true`)
	const want = `{"model":"anthropic","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"stream":true}`
	if sent := string(s.model.Last().Body); sent != want {
		t.Errorf("upstream got\n%s\nwant\n%s", sent, want)
	}
}

// L16, L33: the end is held until the turn is in the trace.
func TestMessageStopIsHeldUntilTheTurnIsCommitted(t *testing.T) {
	messagesBubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("anthropic/message.sse"))
		script.End = scripted.Hang // so that the proxy waits before it commits
		s.model.Script("stop-then-silence", script)
		r := s.register(registry.Spec{})
		l := r.openMessages("stop-then-silence")
		for event := ""; !strings.HasPrefix(event, "event: message_delta"); {
			event = l.event()
		}
		synctest.Wait() // the upstream has sent all that it will send
		before := time.Now()
		r.wantTurns(0)
		if event := l.event(); event != stopEvent {
			s.t.Errorf("the stream ends with %q", event)
		}
		if time.Since(before) == 0 {
			s.t.Error("the end came before the turn was committed")
		}
		r.wantTurns(1)
		s.wantLogged(logged{Outcome: "ok", End: "done", Route: messagesPath})
	})
}

// R29, L14, L15: an upstream that dies is never turned into a clean end.
func TestBrokenMessagesStreamEndsWithAnErrorEvent(t *testing.T) {
	messagesBubble(t, func(s *stack) {
		message := scripted.Fixture("anthropic/message.sse")
		for model, received := range map[string][]byte{
			"anthropic-abort": events(message, 4), "anthropic-reset": events(message, 4),
			"anthropic-no-stop": scripted.Fixture("anthropic/no-stop.sse"),
		} {
			r := s.register(registry.Spec{})
			r.messages(model, streaming).wantMessagesBroken(s.t, received, "upstream_invalid")
			r.wantTurns(0, registry.FailureUpstreamTruncated)
			if failed := r.trace().FailedCalls[0]; !bytes.Equal(failed.Received, received) {
				s.t.Errorf("%s: the failed call keeps\n%s\nwant\n%s", model, failed.Received, received)
			}
			s.wantLogged(logged{Outcome: "upstream_truncated", Status: 200})
		}
	})
}

// R39: a session that ends in the middle breaks its stream off.
func TestEndedSessionBreaksItsMessagesStreamOff(t *testing.T) {
	messagesBubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.openMessages("anthropic-hang")
		first := l.event()
		synctest.Wait() // until all that comes has come
		if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
			s.t.Fatal(err)
		}
		body, err := l.rest()
		received := events(scripted.Fixture("anthropic/message.sse"), 4)
		answer{l.Response, []byte(first + body), err}.wantMessagesBroken(s.t, received, "session_ended")
		r.wantTurns(0, registry.FailureCancelled)
		s.wantIdle()
	})
}

// R33: an error inside a stream passes as it is and makes no turn.
func TestErrorInsideAMessagesStreamPassesUnchangedAndIsAFailedCall(t *testing.T) {
	messagesBubble(t, func(s *stack) {
		for model, fixture := range map[string]string{"anthropic-error-first": "error-in-stream", "anthropic-error-after-text": "error-after-text"} {
			r := s.register(registry.Spec{})
			got := r.messages(model, streaming)
			if want := scripted.Fixture("anthropic/" + fixture + ".sse"); got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
				s.t.Errorf("%s: got %d %v\n%s\nwant\n%s", model, got.StatusCode, got.err, got.body, want)
			}
			r.wantTurns(0, registry.FailureUpstreamError)
			if failed := r.trace().FailedCalls[0]; failed.Error.Message != "Overloaded" || !bytes.Equal(failed.Received, got.body) {
				s.t.Errorf("%s: the failed call is %+v and keeps\n%s", model, failed.Error, failed.Received)
			}
			s.wantLogged(logged{Outcome: "upstream_error", End: "error", Status: 200})
		}
	})
}
