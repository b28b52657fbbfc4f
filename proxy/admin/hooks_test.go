package admin_test

import (
	"net/http"
	"slices"
	"testing"
)

func TestHooksAreKeptAndShown(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "user": value{"url": "http://localhost:9100/user"}, "stop_conditions": []value{
		{"name": "judge", "url": "http://127.0.0.1:9100/stop", "timeout": "30s"},
		{"name": "second", "url": "http://localhost:9100/stop"},
	}})
	shown := h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil)
	if user := shown["user"].(value); user["url"] != "http://localhost:9100/user" || user["timeout_seconds"] != 60.0 {
		t.Errorf("got %v", user)
	}
	conditions := shown["stop_conditions"].([]any)
	first, second := conditions[0].(value), conditions[1].(value)
	if first["url"] != "http://127.0.0.1:9100/stop" || first["timeout_seconds"] != 30.0 || second["timeout_seconds"] != 60.0 {
		t.Errorf("got %v", conditions)
	}
}

// Only the first of several choices could be answered.
func TestSimulatedUserWithSeveralChoicesIsRefused(t *testing.T) {
	h := newHarness(t)
	user := value{"url": "http://localhost:9100/user"}
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions", value{"user": user, "sampling": value{"n": 4}})
	if got := h.locations(r); !slices.Equal(got, []string{"body.sampling.n"}) {
		t.Errorf("got %v", got)
	}
	h.register(value{"id": "a", "user": user, "sampling": value{"n": 1}})
	h.register(value{"id": "b", "sampling": value{"n": 4}})
	h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPatch, "/sessions/a", `{"sampling": {"n": 2}}`)
	h.want(http.StatusOK, http.MethodPatch, "/sessions/b", `{"sampling": {"n": 2}}`)
}

func TestHooksThatMustNotBeCalledAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	for body, want := range map[string]string{
		`{"stop_conditions": [{"name": "a", "tool_call": "x"}, {"name": "j", "url": "http://169.254.169.254/"}]}`: "body.stop_conditions[1].url",
		`{"stop_conditions": [{"name": "j", "url": "stop"}]}`:                                                     "body.stop_conditions[0].url",
		`{"stop_conditions": [{"name": "j", "url": "http://localhost", "timeout": 0}]}`:                           "body.stop_conditions[0].timeout",
		`{"stop_conditions": [{"name": "j", "url": "http://localhost", "tool_call": "x"}]}`:                       "body.stop_conditions[0]",
		`{"stop_conditions": [{"name": "j", "tool_call": "x", "timeout": "3s"}]}`:                                 "body.stop_conditions[0].timeout",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
}
