package proxy_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// The ids that the fixtures of the Responses API have.
const (
	toolsResponse = "resp_68af4030d5e48193a1b2c3d4e5f6a7b80e6967589f080e78"
	toolsReason   = "rs_68af4031c2f081939f1d5a7b8c3e2f100e6967589f080e78"
	helloResponse = "resp_68af4030baa48193b0b43b4c2a176a1a0e6967589f080e78"
	helloMessage  = "msg_68af40337e58819392e935fb404414d00e6967589f080e78"
)

// wantRefused checks a refusal that names a field.
func (a answer) wantRefused(t *testing.T, param string) {
	t.Helper()
	a.wantError(t, 400, "invalid_request")
	var body struct{ Error struct{ Param string } }
	if err := json.Unmarshal(a.body, &body); err != nil || body.Error.Param != param {
		t.Errorf("got %s; want it to name %s", a.body, param)
	}
}

// All sessions share one credential upstream, so that an id from another one
// would be found there.
func TestSessionReachesOnlyWhatItHasReceived(t *testing.T) {
	for _, extra := range []string{"", "," + streaming} {
		s := newStack(t)
		owner, stranger := s.register(registry.Spec{}), s.register(registry.Spec{})
		if got := owner.respond(`{"model":"openai","input":"hi","tools":[{"type":"function","name":"f"}]` + extra + `}`); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
		for param, body := range map[string]string{
			"previous_response_id": `{"model":"openai","input":"go on","previous_response_id":"` + toolsResponse + `"`,
			"input[1].id":          `{"model":"openai","input":[{"role":"user","content":"hi"},{"type":"item_reference","id":"` + toolsReason + `"}]`,
			"input[0].id":          `{"model":"openai","input":[{"type":"reasoning","id":"` + toolsReason + `","summary":[]}]`,
		} {
			asked := len(s.model.Requests())
			stranger.respond(body+extra+`}`).wantRefused(t, param)
			if len(s.model.Requests()) != asked {
				t.Errorf("%s of another session went up", param)
			}
			if got := owner.respond(body + extra + `}`); got.StatusCode != 200 {
				t.Errorf("%s: the owner got %d %s", param, got.StatusCode, got.body)
			}
		}
		stranger.respond(`{"model":"openai","input":"hi","background":true`+extra+`}`).wantRefused(t, "background")
		stranger.respond(`{"model":"openai","input":"hi","conversation":"conv_1"`+extra+`}`).wantRefused(t, "conversation")
		stranger.wantTurns(0)
		owner.wantTurns(4)
	}
}

// What the provider stores is not to be had by the routes of its store either.
func TestStoredResponsesAreNotServed(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	r.respond(responsesBody("openai", ""))
	asked := len(s.model.Requests())
	for _, path := range []string{"/" + helloResponse, "/" + helloResponse + "/cancel", "/" + helloResponse + "/input_items", "/compact", "/input_tokens"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r.do(r.request(method, responsesPath+path, "")).wantError(t, 404, "not_found")
		}
	}
	r.do(r.request(http.MethodGet, responsesPath, "")).wantError(t, 405, "method_not_allowed")
	if n := len(s.model.Requests()); n != asked {
		t.Errorf("%d requests went up", n-asked)
	}
}

func TestReferencesNameTheParent(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for i, call := range []struct {
		body   string
		parent int
	}{
		{`{"model":"openai","input":"hi","tools":[{"type":"function"}]}`, -1},
		{`{"model":"openai","input":"hello"}`, -1},
		{`{"model":"openai","previous_response_id":"` + toolsResponse + `","input":[{"type":"function_call_output","call_id":"c","output":"x"}],"stream":true}`, 0},
		{`{"model":"openai","previous_response_id":"` + helloResponse + `","input":"more"}`, 1},
		{`{"model":"openai","input":[{"role":"user","content":"hi"},{"type":"item_reference","id":"` + toolsReason + `"},{"role":"user","content":"more"}]}`, 0},
		{`{"model":"openai","input":[{"role":"user","content":"hello"},{"role":"assistant","content":"Hello! How can I help?"},{"role":"user","content":"more"}]}`, 1},
		{`{"model":"openai","input":[{"type":"item_reference","id":"` + toolsReason + `"},{"id":"` + helloMessage + `"}]}`, 5}, // the newest that gave it
		{`{"model":"openai","input":"nothing before"}`, -1},
	} {
		if got := r.respond(call.body); got.StatusCode != 200 {
			t.Fatalf("%s: got %d %s", call.body, got.StatusCode, got.body)
		}
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
