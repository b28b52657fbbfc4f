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

const responsesPath = "/v1/responses"

// respond makes a call of the Responses API.
func (r *rollout) respond(body string) answer {
	r.t.Helper()
	return r.do(r.request(http.MethodPost, responsesPath, body))
}

func responsesBody(model, extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"` + model + `","input":"hi"` + extra + `}`
}

func TestResponsesPassByteForByteBothWays(t *testing.T) {
	s := newStack(t)
	const tools = `,"tools":[{"type":"function","name":"get_weather"}]`
	for _, test := range []struct{ body, fixture string }{
		{`{ "model":"openai" , "input":"a\u003c<","zeta":12345678901234567890}`, "responses.json"},
		{`{"model":"openai","input":[{"role":"user","content":"hi"}],"stream":true}`, "responses.sse"},
		{`{"model":"openai","input":"hi"` + tools + `}`, "responses-tools.json"},
		{`{"model":"openai","input":"hi","stream":true,"store":false,"include":["reasoning.encrypted_content"]` + tools + `}`, "responses-tools.sse"},
		{responsesBody("responses-incomplete", ""), "responses-incomplete.json"},
		{responsesBody("responses-incomplete", streaming), "responses-incomplete.sse"},
		{responsesBody("responses-unknown", streaming), "responses-unknown.sse"},
		{responsesBody("responses-empty-output", streaming), "responses-empty-output.sse"},
	} {
		r := s.register(registry.Spec{})
		got := r.respond(test.body)
		want := scripted.Fixture("openai/" + test.fixture)
		if sent := s.model.Last(); string(sent.Body) != test.body || sent.Path != responsesPath {
			t.Errorf("upstream got %s\n%s\nwant\n%s", sent.Path, sent.Body, test.body)
		}
		if got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("%s: client got %d, %v\n%s", test.fixture, got.StatusCode, got.err, got.body)
		}
		r.wantTurns(1)
		turn := r.turns()[0]
		if string(turn.Request()) != test.body || !bytes.Equal(turn.Response(), want) || turn.Dialect != "responses" || turn.Usage == nil || turn.Usage.OutputTokens == 0 {
			t.Errorf("%s: the turn is %+v", test.fixture, turn)
		}
	}
}

// Codex ends a turn on response.completed and on nothing else.
func TestResponseCompletedIsHeldUntilTheTurnIsCommitted(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("openai/responses.sse"))
		script.End = scripted.Hang // so that the proxy waits before it commits
		s.model.Script("end-then-silence", script)
		r := s.register(registry.Spec{})
		l := r.openAt(responsesPath, responsesBody("end-then-silence", streaming))
		for event := ""; !strings.HasPrefix(event, "event: response.output_item.done"); {
			event = l.event()
		}
		synctest.Wait()
		before := time.Now()
		r.wantTurns(0)
		if event := l.event(); !strings.HasPrefix(event, "event: response.completed\n") {
			s.t.Errorf("the stream ends with %q", event)
		}
		if time.Since(before) == 0 {
			s.t.Error("the end came before the turn was committed")
		}
		r.wantTurns(1)
		s.wantLogged(logged{Outcome: "ok", End: "done", Route: responsesPath})
	})
}

// openAt makes a streaming call and returns when its header is there.
func (r *rollout) openAt(path, body string) *live {
	r.t.Helper()
	return r.openRequest(r.request(http.MethodPost, path, body))
}

func TestBrokenResponsesStreamEndsWithAnErrorEvent(t *testing.T) {
	bubble(t, func(s *stack) {
		whole := scripted.Fixture("openai/responses.sse")
		for model, received := range map[string][]byte{
			"responses-abort": events(whole, 5), "responses-no-terminal": scripted.Fixture("openai/responses-no-terminal.sse"),
		} {
			r := s.register(registry.Spec{})
			got := r.respond(responsesBody(model, streaming))
			rest, ok := bytes.CutPrefix(got.body, received)
			if !ok || got.err == nil || bytes.Contains(got.body, []byte("response.completed")) {
				s.t.Errorf("%s: got %v\n%s", model, got.err, got.body)
			}
			data, ok := bytes.CutPrefix(rest, []byte("event: error\ndata: "))
			var event struct {
				Type, Code, Message string
				Error               struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal(data, &event); !ok || err != nil || event.Type != "error" || event.Code != "upstream_invalid" ||
				event.Error.Code != event.Code || event.Error.Message != event.Message || event.Message == "" {
				s.t.Errorf("%s: the stream breaks off with %q", model, rest)
			}
			r.wantTurns(0, registry.FailureUpstreamTruncated)
		}
	})
}

func TestFailedResponsesPassUnchangedAndAreFailedCalls(t *testing.T) {
	s := newStack(t)
	s.model.Script("failed", scripted.JSON([]byte(`{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"boom"},"output":[]}`)))
	for model, want := range map[string][]byte{
		"responses-failed": scripted.Fixture("openai/responses-failed.sse"),
		"responses-error":  scripted.Fixture("openai/responses-error.sse"),
		"failed":           []byte(`{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"boom"},"output":[]}`),
	} {
		r := s.register(registry.Spec{})
		got := r.respond(responsesBody(model, streaming))
		if got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
			t.Errorf("%s: got %d %v\n%s", model, got.StatusCode, got.err, got.body)
		}
		r.wantTurns(0, registry.FailureUpstreamError)
		if overflow := model == "responses-error"; overflow != (r.session.Summary().StopCondition == "context_length") {
			t.Errorf("%s: the session stopped under %q", model, r.session.Summary().StopCondition)
		}
	}
}

// L36: the session has stopped when the harness sees why, not only when the
// stream is over.
func TestOverflowInsideAStreamStopsTheSessionAtItsEvent(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("openai/responses-error.sse"))
		script.End = scripted.Hang
		s.model.Script("overflow", script)
		r := s.register(registry.Spec{})
		l := r.openAt(responsesPath, responsesBody("overflow", streaming))
		for event := ""; !strings.HasPrefix(event, "event: error"); {
			event = l.event()
		}
		if got := r.session.Summary().StopCondition; got != registry.ConditionContextLength {
			s.t.Errorf("the session stopped under %q", got)
		}
		r.respond(responsesBody("openai", "")).wantError(s.t, 400, "session_stopped")
	})
}

func TestAbortedResponseIsNoTurn(t *testing.T) {
	s := newStack(t)
	s.model.Script("cancelled", scripted.JSON([]byte(`{"id":"resp_1","status":"cancelled","output":[]}`)))
	r := s.register(registry.Spec{})
	r.respond(responsesBody("cancelled", "")).wantError(t, 503, "upstream_unavailable")
	r.wantTurns(0, registry.FailureAborted)
}
