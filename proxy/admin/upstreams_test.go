package admin_test

import (
	"net/http"
	"slices"
	"testing"
)

func TestUpstreamsAreMadeListedAndRemoved(t *testing.T) {
	h := newHarness(t)
	if got := h.want(http.StatusOK, http.MethodGet, "/upstreams", nil); len(got["upstreams"].([]any)) != 0 {
		t.Errorf("got %v", got)
	}
	got := h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{
		"replicas": []value{{"name": "r1", "url": "http://10.0.0.7:8000"}, {"url": "http://10.0.0.8:8000/v1"}},
		"api_key":  "sk-1", "headers": value{"X-Org": "me"}, "style": "vllm", "usage": "never",
	})
	if got["name"] != "eu" || got["style"] != "vllm" || got["usage"] != "never" || got["has_api_key"] != true || !slices.Equal(texts(got["headers"]), []string{"X-Org"}) {
		t.Errorf("got %v", got)
	}
	if replicas := got["replicas"].([]any); len(replicas) != 2 || replicas[0].(value)["name"] != "r1" || replicas[1].(value)["name"] != "10.0.0.8:8000" || replicas[0].(value)["state"] != "up" {
		t.Errorf("got %v", got["replicas"])
	}
	h.register(value{"id": "a", "upstream": "eu"})
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{"replicas": []value{{"url": "http://10.0.0.9:8000"}}})
	list := h.want(http.StatusOK, http.MethodGet, "/upstreams", nil)["upstreams"].([]any)
	if len(list) != 1 || list[0].(value)["has_api_key"] != false {
		t.Errorf("got %v", list)
	}
	if r := h.do(http.MethodDelete, "/upstreams/eu", nil); r.StatusCode != http.StatusNoContent || len(r.body) != 0 {
		t.Errorf("got %d %s", r.StatusCode, r.body)
	}
	h.problem(http.StatusNotFound, "not_found", http.MethodDelete, "/upstreams/eu", nil)
}

func TestBadUpstreamsAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	for body, want := range map[string]string{
		`{}`:                 "body",
		`{"replicas": []}`:   "body.replicas",
		`{"replicas": [{}]}`: "body.replicas[0]",
		`{"replicas": [{"url": "http://a"}, {"url": "nonsense"}]}`:                           "body.replicas[1].url",
		`{"replicas": [{"url": 7}]}`:                                                         "body.replicas[0].url",
		`{"replicas": [{"url": "http://a", "weight": 2}]}`:                                   "body.replicas[0].weight",
		`{"replicas": [{"name": "a", "url": "http://a"}, {"name": "a", "url": "http://b"}]}`: "body.replicas[1].name",
		`{"replicas": [{"url": "http://a"}], "style": "azure"}`:                              "body.style",
		`{"replicas": [{"url": "http://a"}], "usage": "maybe"}`:                              "body.usage",
		`{"replicas": [{"url": "http://a"}], "headers": {"X Y": "z"}}`:                       "body.headers.X Y",
		`{"replicas": [{"url": "http://a"}], "key": "k"}`:                                    "body.key",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPut, "/upstreams/eu", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPut, "/upstreams/a%20b", `{"replicas": [{"url": "http://a"}]}`)
	if got := h.locations(r); !slices.Contains(got, "path.name") {
		t.Errorf("got %v; want it to name path.name", got)
	}
}

func TestWeightVersionsAreIntegersOrStrings(t *testing.T) {
	h := newHarness(t)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{
		"replicas": []value{{"name": "r1", "url": "http://10.0.0.7:8000"}, {"name": "r2", "url": "http://10.0.0.8:8000"}},
	})
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu/weight_version", value{"weight_version": 17})
	got := h.want(http.StatusOK, http.MethodPut, "/upstreams/eu/weight_version", value{"weight_version": "step-18", "replica": "r2"})
	replicas := got["replicas"].([]any)
	if replicas[0].(value)["weight_version"] != 17.0 || replicas[1].(value)["weight_version"] != "step-18" {
		t.Errorf("got %v", replicas)
	}
	for body, want := range map[string]string{
		`{}`: "body", `{"weight_version": null}`: "body.weight_version", `{"weight_version": 1.5}`: "body.weight_version",
		`{"weight_version": {}}`: "body.weight_version", `{"weight_version": 1, "replica": "r9"}`: "body.replica",
		`{"weight_version": 1, "version": 2}`: "body.version",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPut, "/upstreams/eu/weight_version", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
	h.problem(http.StatusNotFound, "not_found", http.MethodPut, "/upstreams/us/weight_version", value{"weight_version": 1})
}

func TestPauseIsNotServed(t *testing.T) {
	h := newHarness(t)
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/upstreams/default/pause", `{}`)
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/upstreams/default/resume", `{}`)
}
