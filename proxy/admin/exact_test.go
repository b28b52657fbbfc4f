package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestFieldNamesAreTakenOnlyAsTheyAreWritten(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodPost, "/sessions", `{"ID": "b"}`, "body.ID"},
		{http.MethodPost, "/sessions", `{"limits": {"Max_Turns": 1}}`, "body.limits.Max_Turns"},
		{http.MethodPost, "/sessions", `{"stop_conditions": [{"Name": "a", "tool_call": "b", "name": "c"}]}`, "body.stop_conditions[0].Name"},
		{http.MethodPost, "/sessions/batch", `{"sessions": [{}, {"Lease": 5}]}`, "body.sessions[1].Lease"},
		{http.MethodPost, "/sessions/stop", `{"Ids": ["a"]}`, "body.Ids"},
		{http.MethodPatch, "/sessions/a", `{"Limits": {"max_turns": 1}}`, "body.Limits"},
		{http.MethodPatch, "/sessions/a", `{"limits": {"MAX_TURNS": 1}}`, "body.limits.MAX_TURNS"},
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", c.method, c.path, c.body)
		if got := h.locations(r); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s %s %s: got %v; want it to name %s", c.method, c.path, c.body, got, c.want)
		}
		if got, want := h.decode(r.body)["detail"], c.want+": unexpected property"; got != want {
			t.Errorf("%s %s %s: got %v; want %s", c.method, c.path, c.body, got, want)
		}
	}
	if spec := h.spec("a"); spec.Limits.MaxTurns != nil {
		t.Error("a misspelt field was applied")
	}
	h.register(value{"id": "c", "labels": value{"ID": "Free"}, "metadata": value{"Any": value{"Case": 1}}, "sampling": value{"Top_K": 1}})
}

// To a schema 20.0 is an integer, and Python's arithmetic makes such.
func TestIntegersWithAFractionAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodPost, "/sessions", `{"limits": {"max_turns": 20.0}}`, "body.limits.max_turns"},
		{http.MethodPost, "/sessions", `{"limits": {"max_total_tokens": 1e30}}`, "body.limits.max_total_tokens"},
		{http.MethodPost, "/sessions/batch", `{"template": {"limits": {"max_inflight": 2.0}}, "count": 2}`, "body.template.limits.max_inflight"},
		{http.MethodPost, "/sessions/batch", `{"sessions": [{}, {"limits": {"max_turns": 1e1}}]}`, "body.sessions[1].limits.max_turns"},
		{http.MethodPatch, "/sessions/a", `{"limits": {"max_turns": 5.0}}`, "body.limits.max_turns"},
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", c.method, c.path, c.body)
		if got, want := h.decode(r.body)["detail"], c.want+": expected an integer of 64 bits, without a fraction"; got != want || !slices.Equal(h.locations(r), []string{c.want}) {
			t.Errorf("%s %s %s: got %s; want %s", c.method, c.path, c.body, r.body, want)
		}
	}
	h.register(value{"id": "null", "limits": value{"max_turns": nil, "requests_per_second": 2.5}})
}

// Answers give durations out under other names than requests take them.
func TestDurationUnderTheNameOfAnAnswerIsRefusedWithAHint(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	for method, path := range map[string]string{http.MethodPost: "/sessions", http.MethodPatch: "/sessions/a"} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", method, path, value{"lease_seconds": 3, "limits": value{"max_duration_seconds": 3}})
		detail := fmt.Sprint(h.decode(r.body)["detail"])
		for _, field := range []string{"body.lease_seconds", "body.limits.max_duration_seconds"} {
			if !strings.Contains(detail, field+": unexpected property: a duration is taken under a name without _seconds") {
				t.Errorf("%s: got %q; want it to name %s", method, detail, field)
			}
		}
	}
}

// What comes in the body of a call that takes none would be without effect.
func TestBodyOfACallThatTakesNoneIsRefused(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodPost, "/sessions/a/heartbeat", `{"lease": "2h"}`, "body.lease: unexpected property"},
		{http.MethodPost, "/sessions/a/rotate", `{"secret": "` + secret + `"}`, "body.secret: unexpected property"},
		{http.MethodDelete, "/sessions/a", `{"purge": true, "reason": "x"}`, "body.purge: expected in the query; body.reason: unexpected property"},
		{http.MethodPost, "/servers/srv-1/drain", `[1]`, "body: expected none: this call takes no body"},
		{http.MethodGet, "/sessions", `state=active`, "body: expected none: this call takes no body"},
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", c.method, c.path, c.body)
		if got := h.decode(r.body)["detail"]; got != c.want {
			t.Errorf("%s %s %s: got %v; want %s", c.method, c.path, c.body, got, c.want)
		}
	}
	for _, body := range []string{"{}", " {} ", "\n", "null"} {
		h.want(http.StatusOK, http.MethodPost, "/sessions/a/heartbeat", body)
	}
	h.want(http.StatusOK, http.MethodDelete, "/sessions/a", "{}")
	h.want(http.StatusOK, http.MethodGet, "/healthz", "anything")
}
