package admin_test

import (
	"net/http"
	"slices"
	"testing"
)

func TestUpstreamIsPausedAndResumedWithTheNewWeights(t *testing.T) {
	h := newHarness(t)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{"replicas": []value{{"name": "r1", "url": "http://10.0.0.7:8000"}}})
	for _, body := range []any{value{}, value{"mode": "reject", "inflight": "abort", "timeout": "1h", "on_timeout": "reject"}, value{"inflight": "wait", "timeout": 30}} {
		got := h.want(http.StatusOK, http.MethodPost, "/upstreams/eu/pause", body)
		want := "hold"
		if body.(value)["mode"] != nil {
			want = "reject"
		}
		if paused, _ := got["paused"].(value); paused["mode"] != want || paused["until"] == nil || paused["held"] != 0.0 || got["inflight"] != 0.0 {
			t.Errorf("%v: got %v; want it paused", body, got)
		}
	}
	got := h.want(http.StatusOK, http.MethodPost, "/upstreams/eu/resume", value{"weight_version": 18})
	if got["paused"] != nil || got["replicas"].([]any)[0].(value)["weight_version"] != 18.0 {
		t.Errorf("got %v; want it running version 18", got)
	}
	got = h.want(http.StatusOK, http.MethodPost, "/upstreams/eu/resume", nil)
	if got["replicas"].([]any)[0].(value)["weight_version"] != 18.0 {
		t.Errorf("resumed again: got %v; want no change", got)
	}
}

func TestPauseNeedsNoBody(t *testing.T) {
	h := newHarness(t)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{"replicas": []value{{"url": "http://10.0.0.7:8000"}}})
	got := h.want(http.StatusOK, http.MethodPost, "/upstreams/eu/pause", nil)
	if at(got, "paused", "mode") != "hold" || at(got, "paused", "until") == nil {
		t.Errorf("got %v; want new calls held for a while", got)
	}
}

func TestBadPausesAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{"replicas": []value{{"url": "http://10.0.0.7:8000"}}})
	for body, want := range map[string]string{
		`{"mode": "stop"}`: "body.mode", `{"inflight": "kill"}`: "body.inflight", `{"on_timeout": "hold"}`: "body.on_timeout",
		`{"timeout": "soon"}`: "body.timeout", `{"timeout": 0}`: "body.timeout", `{"until": 3}`: "body.until",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/upstreams/eu/pause", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/upstreams/eu/resume", `{"weight_version": 1.5}`)
	if got := h.locations(r); !slices.Contains(got, "body.weight_version") {
		t.Errorf("got %v; want it to name body.weight_version", got)
	}
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/upstreams/us/pause", `{}`)
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/upstreams/us/resume", `{}`)
}
