package admin_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

func TestBatchRegistersInOrder(t *testing.T) {
	h := newHarness(t)
	got := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", value{"sessions": []value{{"id": "b"}, {"id": "a", "secret": secret}, {}}})
	list := got["sessions"].([]any)
	if len(list) != 3 || at(list[0].(value), "id") != "b" || at(list[1].(value), "env", "OPENAI_API_KEY") != secret {
		t.Errorf("got %v", got)
	}
}

func TestBatchOfATemplateMakesIdsAndSecrets(t *testing.T) {
	h := newHarness(t)
	got := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch",
		value{"template": value{"labels": value{"group": "42"}, "limits": value{"max_turns": 3}}, "count": 16})
	ids, secrets := map[any]bool{}, map[any]bool{}
	for _, e := range got["sessions"].([]any) {
		ids[at(e.(value), "id")] = true
		secrets[at(e.(value), "secret")] = true
	}
	if len(ids) != 16 || len(secrets) != 16 {
		t.Errorf("got %d ids and %d secrets; want 16 of each", len(ids), len(secrets))
	}
	if n := len(h.registry.Select(map[string]string{"group": "42"})); n != 16 {
		t.Errorf("got %d sessions; want 16", n)
	}
}

func TestAtomicBatchIsAllOrNothing(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "taken"})
	r := h.problem(http.StatusConflict, "duplicate_id", http.MethodPost, "/sessions/batch", value{"sessions": []value{{"id": "a"}, {"id": "taken"}}})
	if got := h.locations(r); !slices.Equal(got, []string{"body.sessions[1].id"}) {
		t.Errorf("got %v; want the second session named", got)
	}
	h.want(http.StatusNotFound, http.MethodGet, "/sessions/a", nil)
	if h.pool.count() != 1 {
		t.Errorf("got %d places; want 1", h.pool.count())
	}

	capped := newHarness(t, func(o *registry.Options, _ *admin.Options) { o.MaxSessions = 2 })
	capped.problem(http.StatusTooManyRequests, "too_many_sessions", http.MethodPost, "/sessions/batch", value{"template": value{}, "count": 3})
	if capped.pool.count() != 0 || capped.registry.Stats().Registered != 0 {
		t.Error("something was registered")
	}
}

func TestBatchThatIsNotAtomicReportsEach(t *testing.T) {
	h := newHarness(t, func(o *registry.Options, _ *admin.Options) { o.MaxSessions = 3 })
	h.register(value{"id": "taken"})
	got := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch",
		value{"atomic": false, "sessions": []value{{"id": "a"}, {"id": "taken"}, {"id": "b"}, {"id": "c"}}})
	list := got["sessions"].([]any)
	if at(list[0].(value), "id") != "a" || at(list[2].(value), "id") != "b" {
		t.Errorf("got %v", list)
	}
	if at(list[1].(value), "error", "code") != "duplicate_id" || list[1].(value)["id"] != "taken" {
		t.Errorf("got %v", list[1])
	}
	if at(list[3].(value), "error", "code") != "too_many_sessions" {
		t.Errorf("got %v", list[3])
	}
	if h.pool.count() != 3 {
		t.Errorf("got %d places; want 3", h.pool.count())
	}
}

func TestUnknownUpstreamIsReportedOfItsSessionAlone(t *testing.T) {
	h := newHarness(t)
	got := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch",
		value{"atomic": false, "sessions": []value{{"id": "a"}, {"id": "b", "upstream": "nope"}, {"id": "c"}}})
	list := got["sessions"].([]any)
	if at(list[0].(value), "id") != "a" || at(list[2].(value), "id") != "c" {
		t.Errorf("got %v", list)
	}
	errs, _ := at(list[1].(value), "error", "errors").([]any)
	if len(errs) != 1 || errs[0].(value)["location"] != "body.sessions[1].upstream" {
		t.Errorf("got %v; want body.sessions[1].upstream named", list[1])
	}
	if h.pool.count() != 2 {
		t.Errorf("got %d places; want 2", h.pool.count())
	}
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions", value{"upstream": "nope"})
	if got := h.locations(r); !slices.Equal(got, []string{"body.upstream"}) {
		t.Errorf("got %v; want body.upstream", got)
	}
}

func TestBatchCanBeRetried(t *testing.T) {
	h := newHarness(t)
	body := value{"sessions": []value{{"id": "a", "secret": secret}, {"id": "b", "secret": secret + "b"}}}
	h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", body)
	h.want(http.StatusOK, http.MethodPost, "/sessions/batch", body)
}

func TestBadBatchesAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	for body, want := range map[string]string{
		`{}`:                                                                   "body",
		`{"sessions": []}`:                                                     "body.sessions",
		`{"template": {}}`:                                                     "body.count",
		`{"template": {}, "count": 0}`:                                         "body.count",
		`{"template": {}, "count": 1025}`:                                      "body.count",
		`{"template": {"id": "a"}, "count": 1}`:                                "body.template.id",
		`{"template": {"lease": "x"}, "count": 1}`:                             "body.template.lease",
		`{"template": {"upstream": "x"}, "count": 1}`:                          "body.template.upstream",
		`{"template": {}, "count": 1, "sessions": [{}]}`:                       "body",
		`{"sessions": [{}], "count": 1}`:                                       "body.count",
		`{"sessions": [{}, {"limits": {"max_turns": -1}}]}`:                    "body.sessions[1].limits.max_turns",
		`{"sessions": [{"wait": "x"}]}`:                                        "body.sessions[0].wait",
		`{"sessions": [{"id": "a"}, {"id": "a"}]}`:                             "body.sessions[1].id",
		`{"sessions": [{"nope": 1}]}`:                                          "body.sessions[0].nope",
		`{"sessions": [{}, {"stop_conditions": [{"name": "x", "url": "y"}]}]}`: "body.sessions[1].stop_conditions[0].url",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions/batch", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
	if h.pool.count() != 0 {
		t.Errorf("got %d places; want 0", h.pool.count())
	}
}

func TestBatchSaysWhichSessionIsRefused(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "taken", "secret": secret})
	for body, want := range map[string]string{
		`{"sessions": [{"id": "taken"}]}`:                               "body.sessions[0].id",
		`{"sessions": [{"id": "b"}, {"id": "taken"}]}`:                  "body.sessions[1].id",
		`{"sessions": [{"id": "b"}, {"secret": "` + secret + `"}, {}]}`: "body.sessions[1].secret",
	} {
		r := h.do(http.MethodPost, "/sessions/batch", body)
		if got := h.locations(r); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v; want %s", body, got, want)
		}
	}
	got := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", `{"atomic": false, "sessions": [{}, {"id": "taken"}]}`)
	refused := got["sessions"].([]any)[1].(value)
	if errs := at(refused, "error", "errors").([]any); errs[0].(value)["location"] != "body.sessions[1].id" {
		t.Errorf("got %v", refused)
	}
}
