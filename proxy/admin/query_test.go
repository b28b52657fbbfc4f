package admin_test

import (
	"net/http"
	"slices"
	"testing"
)

func TestParametersOfOneValueAreTakenOnce(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "labels": value{"x": "1", "y": "2"}})
	for _, c := range []struct{ method, path, want string }{
		{http.MethodGet, "/sessions?state=active&state=ended", "query.state"},
		{http.MethodGet, "/sessions?limit=1&limit=1", "query.limit"},
		{http.MethodGet, "/sessions?cursor=&cursor=", "query.cursor"},
		{http.MethodDelete, "/sessions/a?purge=false&purge=true", "query.purge"},
		{http.MethodGet, "/sessions?limit=1;state=ended", "query"},
		{http.MethodGet, "/sessions?state=%zz", "query"},
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", c.method, c.path, nil)
		if got := h.locations(r); !slices.Contains(got, c.want) {
			t.Errorf("%s: got %v; want it to name %s", c.path, got, c.want)
		}
	}
	if got := h.want(http.StatusOK, http.MethodGet, "/sessions?label=x:1&label=y:2", nil)["sessions"].([]any); len(got) != 1 {
		t.Errorf("got %v; want the session with both labels", got)
	}
}

func TestRootPointsToTheDocumentation(t *testing.T) {
	h := newHarness(t)
	r := h.problem(http.StatusNotFound, "not_found", http.MethodGet, "/", nil)
	if got := h.decode(r.body)["detail"]; got != "nothing is here: the API can be browsed at /docs and is described in /openapi.json" {
		t.Errorf("got %v", got)
	}
}
