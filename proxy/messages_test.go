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
