package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func TestHeartbeatRenewsTheLease(t *testing.T) {
	h := newHarness(t)
	first := h.register(value{"id": "a", "lease": "1h"})
	got := h.want(http.StatusOK, http.MethodPost, "/sessions/a/heartbeat", nil)
	if got["id"] != "a" || got["expires_at"].(string) <= first["expires_at"].(string) {
		t.Errorf("got %v after %v", got["expires_at"], first["expires_at"])
	}
	h.want(http.StatusOK, http.MethodDelete, "/sessions/a", nil)
	h.problem(http.StatusGone, "session_ended", http.MethodPost, "/sessions/a/heartbeat", nil)
}

func TestBulkHeartbeatNamesTheUnknownOnes(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "labels": value{"g": "1"}})
	h.register(value{"id": "b", "labels": value{"g": "1"}})
	h.register(value{"id": "c"})
	h.want(http.StatusOK, http.MethodDelete, "/sessions/c", nil)
	got := h.want(http.StatusOK, http.MethodPost, "/sessions/heartbeat", value{"ids": []string{"a", "x", "c", "a", "y"}})
	if n := len(got["sessions"].([]any)); n != 1 {
		t.Errorf("got %d renewed; want 1", n)
	}
	if u := texts(got["unknown"]); !slices.Equal(u, []string{"x", "y"}) {
		t.Errorf("got unknown %v", u)
	}
	if e := texts(got["ended"]); !slices.Equal(e, []string{"c"}) {
		t.Errorf("got ended %v", e)
	}
	got = h.want(http.StatusOK, http.MethodPost, "/sessions/heartbeat", value{"labels": value{"g": "1"}})
	if n := len(got["sessions"].([]any)); n != 2 {
		t.Errorf("got %d renewed; want 2", n)
	}
}

func TestBulkCallsNeedASelection(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{"/sessions/heartbeat", "/sessions/stop", "/sessions/end", "/traces/query"} {
		for body, want := range map[string]string{
			`{}`: "body", `{"ids": []}`: "body.ids", `{"labels": {}}`: "body.labels", `{"ids": ["a"], "labels": {"a": "b"}}`: "body",
			`{"ids": "a"}`: "body.ids", `{"ids": [1]}`: "body.ids[0]", `{"id": "a"}`: "body.id",
		} {
			r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, path, body)
			if got := h.locations(r); !slices.Contains(got, want) {
				t.Errorf("%s %s: got %v; want it to name %s", path, body, got, want)
			}
		}
		h.problem(http.StatusBadRequest, "invalid_request", http.MethodPost, path, nil)
	}
}

func TestReasonToStopIsTextWithoutControlCharacters(t *testing.T) {
	h := newHarness(t)
	for i, reason := range []string{"judge said: no more (score 0.2)", "zu früh, 北京", strings.Repeat("é", 256)} {
		id := fmt.Sprint("s", i)
		h.register(value{"id": id})
		if got := h.want(http.StatusOK, http.MethodPost, "/sessions/"+id+"/stop", value{"reason": reason}); got["stop_condition"] != reason {
			t.Errorf("got %q; want %q", got["stop_condition"], reason)
		}
	}
	h.register(value{"id": "a"})
	for _, reason := range []string{"", "two\nlines", "\x1b[31m", "a\u0085b", strings.Repeat("x", 257)} {
		for path, body := range map[string]value{"/sessions/a/stop": {}, "/sessions/stop": {"ids": []string{"a"}}} {
			body["reason"] = reason
			r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, path, body)
			if got := h.locations(r); !slices.Contains(got, "body.reason") {
				t.Errorf("%q: got %v; want body.reason named", reason, got)
			}
		}
	}
}

func TestStopKeepsTheFirstReason(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	h.register(value{"id": "b"})
	got := h.want(http.StatusOK, http.MethodPost, "/sessions/a/stop", value{"reason": "enough"})
	if got["state"] != "stopped" || got["stop_condition"] != "enough" {
		t.Errorf("got %v, %v", got["state"], got["stop_condition"])
	}
	h.want(http.StatusOK, http.MethodPost, "/sessions/a/stop", value{"reason": "other"})
	if got = h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil); got["stop_condition"] != "enough" {
		t.Errorf("got %v; want the first reason", got["stop_condition"])
	}
	got = h.want(http.StatusOK, http.MethodPost, "/sessions/stop", value{"ids": []string{"a", "b", "x"}, "reason": "step_over"})
	list := got["sessions"].([]any)
	if list[0].(value)["stop_condition"] != "enough" || list[1].(value)["stop_condition"] != "step_over" || !slices.Equal(texts(got["unknown"]), []string{"x"}) {
		t.Errorf("got %v", got)
	}
	h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions/b/stop", `{"cancle": true}`)
}

func TestStopWithCancelCancelsCallsInFlight(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	s, err := h.registry.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.Admit(t.Context(), registry.CallInfo{Dialect: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	h.want(http.StatusOK, http.MethodPost, "/sessions/a/stop", nil)
	if call.Context().Err() != nil {
		t.Error("a stop without cancel cancelled a call")
	}
	h.want(http.StatusOK, http.MethodPost, "/sessions/a/stop", value{"cancel": true})
	<-call.Context().Done()
}

func TestRotatedSecretEndsAtOnce(t *testing.T) {
	h := newHarness(t)
	old := h.register(value{"id": "a"})["secret"].(string)
	got := h.want(http.StatusOK, http.MethodPost, "/sessions/a/rotate", nil)
	next := got["secret"].(string)
	if next == old || at(got, "env", "ANTHROPIC_API_KEY") != next {
		t.Errorf("got %v", got)
	}
	if _, err := h.registry.Lookup(old); err == nil {
		t.Error("the old secret still works")
	}
	if s, err := h.registry.Lookup(next); err != nil || s.ID() != "a" {
		t.Errorf("got %v for the new secret", err)
	}
}

func TestEndingAgainGivesTheSameAnswer(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	h.turn("a", `{"messages":[]}`, registry.Response{Status: 200, Body: []byte(`{}`)})
	first := h.do(http.MethodDelete, "/sessions/a", nil)
	got := h.decode(first.body)
	if first.StatusCode != http.StatusOK || got["state"] != "ended" || got["end_reason"] != "deleted" || got["turns"] != 1.0 || got["expires_at"] != nil {
		t.Fatalf("got %d %v", first.StatusCode, got)
	}
	if h.pool.count() != 0 {
		t.Error("the place is still taken")
	}
	again := h.do(http.MethodDelete, "/sessions/a", nil)
	purged := h.do(http.MethodDelete, "/sessions/a?purge=true", nil)
	after := h.do(http.MethodDelete, "/sessions/a", nil)
	for _, r := range []reply{again, purged, after} {
		if r.StatusCode != http.StatusOK || string(r.body) != string(first.body) {
			t.Errorf("got %d %s; want %s", r.StatusCode, r.body, first.body)
		}
	}
	h.problem(http.StatusNotFound, "not_found", http.MethodGet, "/sessions/a/trace", nil)
}

func TestEndWithTraceAnswersTheTraceAndPurgesAfterwards(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	h.turn("a", `{"messages":[]}`, registry.Response{Status: 200, Body: []byte(`{"x":1}`)})
	got := h.want(http.StatusOK, http.MethodDelete, "/sessions/a?trace=true&purge=true", nil)
	if at(got, "session", "state") != "ended" || len(got["turns"].([]any)) != 1 {
		t.Errorf("got %v", got)
	}
	got = h.want(http.StatusOK, http.MethodDelete, "/sessions/a?trace=true", nil)
	if at(got, "session", "turns") != 1.0 || got["turns"] != nil {
		t.Errorf("got %v; want the summary and no turns", got)
	}
}

func TestBulkEndByIdsOrLabels(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"a", "b", "c"} {
		h.register(value{"id": id, "labels": value{"step": "1"}})
	}
	got := h.want(http.StatusOK, http.MethodPost, "/sessions/end", value{"ids": []string{"a", "x"}})
	if len(got["sessions"].([]any)) != 1 || !slices.Equal(texts(got["unknown"]), []string{"x"}) {
		t.Errorf("got %v", got)
	}
	lines := h.lines(http.MethodPost, "/sessions/end?trace=true&purge=true", value{"labels": value{"step": "1"}})
	if len(lines) != 3 || at(lines[0], "session", "state") != "ended" {
		t.Errorf("got %v", lines)
	}
	if got := h.want(http.StatusOK, http.MethodGet, "/sessions", nil); len(got["sessions"].([]any)) != 0 {
		t.Errorf("got %v; want every trace removed", got)
	}
	if h.pool.count() != 0 {
		t.Errorf("got %d places; want 0", h.pool.count())
	}
}
