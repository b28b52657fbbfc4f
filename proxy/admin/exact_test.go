package admin_test

import (
	"net/http"
	"slices"
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
