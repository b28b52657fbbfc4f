package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

const secret = "a-secret-of-the-client-0123456789"

func TestRegisteringAnswersWithAllThatAHarnessNeeds(t *testing.T) {
	h := newHarness(t)
	got := h.register(value{
		"id": "gsm8k-0042-a", "secret": secret, "labels": value{"env": "gsm8k", "group": "42"},
		"metadata": value{"row": 42}, "upstream": "default", "affinity": "group-42", "model": "Qwen/Qwen3-8B",
		"sampling": value{"temperature": 1.0, "max_tokens": 2048, "top_k": 20}, "sampling_mode": "override",
		"limits": value{
			"max_turns": 20, "max_input_tokens": 200000, "max_output_tokens": 32000, "max_total_tokens": 220000,
			"max_context_tokens": 40960, "max_inflight": 4, "requests_per_second": 5, "max_duration": "30m",
		},
		"stop_conditions": []value{
			{"name": "submitted", "tool_call": "submit"},
			{"name": "gave_up", "text_regexp": "I cannot (solve|do) this"},
		},
		"on_endpoint_loss": "stop", "lease": "1h", "wait": "60s",
	})
	for path, want := range map[string]any{
		"id": "gsm8k-0042-a", "secret": secret, "state": "active", "server": "srv-1",
		"endpoint.url": "https://abc.example.net", "endpoint.generation": 1.0,
		"endpoint.openai_base_url": "https://abc.example.net/v1", "endpoint.anthropic_base_url": "https://abc.example.net",
		"env.OPENAI_BASE_URL": "https://abc.example.net/v1", "env.OPENAI_API_BASE": "https://abc.example.net/v1",
		"env.OPENAI_API_KEY": secret, "env.ANTHROPIC_BASE_URL": "https://abc.example.net", "env.ANTHROPIC_API_KEY": secret,
	} {
		if v := at(got, strings.Split(path, ".")...); v != want {
			t.Errorf("%s: got %v; want %v", path, v, want)
		}
	}
	created, err := time.Parse(time.RFC3339, got["created_at"].(string))
	if err != nil {
		t.Error(err)
	}
	expires, err := time.Parse(time.RFC3339, got["expires_at"].(string))
	if err != nil || expires.Sub(created) != time.Hour {
		t.Errorf("got a lease of %v, %v; want 1h", expires.Sub(created), err)
	}

	spec := h.spec("gsm8k-0042-a")
	if *spec.Limits.MaxDuration != 30*time.Minute || *spec.Limits.MaxTurns != 20 || *spec.Limits.MaxInflight != 4 || *spec.Limits.RequestsPerSecond != 5 {
		t.Errorf("got limits %+v", spec.Limits)
	}
	if len(spec.StopConditions) != 2 || spec.StopConditions[1].TextRegexp.String() != "I cannot (solve|do) this" {
		t.Errorf("got stop conditions %+v", spec.StopConditions)
	}
	if string(spec.Sampling["max_tokens"]) != "2048" {
		t.Errorf("got sampling %s", spec.Sampling)
	}
}

func (h *harness) spec(id string) registry.Spec {
	h.t.Helper()
	s, err := h.registry.Get(id)
	if err != nil {
		h.t.Fatal(err)
	}
	return s.Spec()
}

func TestEveryFieldOfRegisteringIsOptional(t *testing.T) {
	h := newHarness(t)
	for _, body := range []any{nil, "", "{}", `{"id": null, "limits": null, "lease": null}`} {
		got := h.want(http.StatusCreated, http.MethodPost, "/sessions", body)
		if !strings.HasPrefix(got["secret"].(string), "mxp_") || got["id"] == "" {
			t.Errorf("got %v", got)
		}
	}
}

func TestDurationsAreGoDurationsOrSeconds(t *testing.T) {
	h := newHarness(t)
	for given, want := range map[string]time.Duration{
		`"90s"`: 90 * time.Second, `"1h30m"`: 90 * time.Minute, `90`: 90 * time.Second, `0.5`: 500 * time.Millisecond, `1e2`: 100 * time.Second,
	} {
		got := h.want(http.StatusCreated, http.MethodPost, "/sessions", `{"lease": `+given+`, "limits": {"max_duration": `+given+`}}`)
		spec := h.spec(got["id"].(string))
		if spec.Lease != want || *spec.Limits.MaxDuration != want {
			t.Errorf("%s: got %v and %v; want %v", given, spec.Lease, *spec.Limits.MaxDuration, want)
		}
		shown := h.want(http.StatusOK, http.MethodGet, "/sessions/"+got["id"].(string), nil)
		if shown["lease_seconds"] != want.Seconds() || at(shown, "limits", "max_duration_seconds") != want.Seconds() {
			t.Errorf("%s: shown as %v and %v", given, shown["lease_seconds"], at(shown, "limits"))
		}
	}
}

func TestBadSessionsAreRefusedByField(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct{ body, want string }{
		{`{"idd": "x"}`, "body.idd"},
		{`{"limits": {"max_turn": 1}}`, "body.limits.max_turn"},
		{`{"user": {"url": "http://a"}}`, "body.user.url"},
		{`{"user": {"url": "http://localhost", "timeout": 0}}`, "body.user.timeout"},
		{`{"capture": {"token_ids": 1}}`, "body.capture.token_ids"},
		{`{"capture": {"hidden_states": true}}`, "body.capture.hidden_states"},
		{`{"sampling": {"previous_response_id": "resp_1"}}`, "body.sampling.previous_response_id"},
		{`{"id": 7}`, "body.id"},
		{`{"id": "-a"}`, "body.id"},
		{`{"id": ""}`, "body.id"},
		{`{"id": "a/b"}`, "body.id"},
		{`{"secret": "short"}`, "body.secret"},
		{`{"secret": "has a space in it, sadly!"}`, "body.secret"},
		{`{"labels": {"a": 1}}`, "body.labels.a"},
		{`{"labels": {"a:b": "c"}}`, "body.labels.a:b"},
		{`{"labels": "a"}`, "body.labels"},
		{`{"limits": []}`, "body.limits"},
		{`{"limits": {"max_turns": -1}}`, "body.limits.max_turns"},
		{`{"limits": {"max_turns": 1.5}}`, "body.limits.max_turns"},
		{`{"limits": {"max_turns": "1"}}`, "body.limits.max_turns"},
		{`{"limits": {"max_input_tokens": -1}}`, "body.limits.max_input_tokens"},
		{`{"limits": {"max_output_tokens": -1}}`, "body.limits.max_output_tokens"},
		{`{"limits": {"max_total_tokens": -1}}`, "body.limits.max_total_tokens"},
		{`{"limits": {"max_context_tokens": -1}}`, "body.limits.max_context_tokens"},
		{`{"limits": {"max_inflight": 0}}`, "body.limits.max_inflight"},
		{`{"limits": {"requests_per_second": 0}}`, "body.limits.requests_per_second"},
		{`{"limits": {"requests_per_second": -2}}`, "body.limits.requests_per_second"},
		{`{"limits": {"max_duration": "-5s"}}`, "body.limits.max_duration"},
		{`{"limits": {"max_duration": "soon"}}`, "body.limits.max_duration"},
		{`{"limits": {"max_duration": 0}}`, "body.limits.max_duration"},
		{`{"lease": -1}`, "body.lease"},
		{`{"lease": 0}`, "body.lease"},
		{`{"lease": true}`, "body.lease"},
		{`{"lease": {}}`, "body.lease"},
		{`{"lease": 1e300}`, "body.lease"},
		{`{"wait": "1 minute"}`, "body.wait"},
		{`{"sampling_mode": "both"}`, "body.sampling_mode"},
		{`{"sampling": {"model": "m"}}`, "body.sampling.model"},
		{`{"sampling": {"messages": []}}`, "body.sampling.messages"},
		{`{"on_endpoint_loss": "cry"}`, "body.on_endpoint_loss"},
		{`{"upstream": "nowhere"}`, "body.upstream"},
		{`{"stop_conditions": [{"name": "a"}]}`, "body.stop_conditions[0]"},
		{`{"stop_conditions": [{"tool_call": "a"}]}`, "body.stop_conditions[0]"},
		{`{"stop_conditions": [{"name": "a", "text_regexp": "("}]}`, "body.stop_conditions[0].text_regexp"},
		{`{"stop_conditions": [{"name": "a", "url": "http://10.0.0.1/"}]}`, "body.stop_conditions[0].url"},
		{`{"stop_conditions": [{"name": "a", "tool_call": "a"}, {"name": "a", "tool_call": "b"}]}`, "body.stop_conditions[1].name"},
		{`{"stop_conditions": [{"name": "a", "tool_call": "a", "text_regexp": "b"}]}`, "body.stop_conditions[0]"},
		{`{"stop_conditions": [{"name": "max_turns", "tool_call": "a"}]}`, "body.stop_conditions[0].name"},
		{`{"stop_conditions": [{"name": "a", "tool_call": "a"}, {"name": "context_length", "tool_call": "a"}]}`, "body.stop_conditions[1].name"},
		{`[]`, "body"},
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions", c.body)
		if got := h.locations(r); !slices.Contains(got, c.want) {
			t.Errorf("%s: got %v; want it to name %s", c.body, got, c.want)
		}
	}
	if n := h.pool.count(); n != 0 {
		t.Errorf("got %d places taken; want 0", n)
	}
}

func TestAllFaultsOfABodyAreNamedAtOnce(t *testing.T) {
	h := newHarness(t)
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions",
		`{"nope": 1, "limits": {"max_turns": -1}, "lease": "soon", "stop_conditions": [{"name": "a", "text_regexp": "["}]}`)
	got := h.locations(r)
	for _, want := range []string{"body.nope", "body.limits.max_turns", "body.lease", "body.stop_conditions[0].text_regexp"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %v; want it to name %s", got, want)
		}
	}
}

func TestBrokenBodiesAreRefused(t *testing.T) {
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) { o.MaxBodyBytes = 1 << 10 })
	for _, body := range []string{`{`, `{"id": }`, `nonsense`, `{"id": "a"} {}`} {
		h.problem(http.StatusBadRequest, "invalid_request", http.MethodPost, "/sessions", body)
	}
	h.problem(http.StatusUnsupportedMediaType, "unsupported_media_type", http.MethodPost, "/sessions", "{}", "Content-Type", "text/plain")
	pad := func(n int) string { return `{"model": "` + strings.Repeat("m", n-len(`{"model": ""}`)) + `"}` }
	h.problem(http.StatusRequestEntityTooLarge, "body_too_large", http.MethodPost, "/sessions", pad(1<<10+1))
	h.want(http.StatusCreated, http.MethodPost, "/sessions", pad(1<<10))
}

func TestAnIDIsTakenAsLongAsAnythingOfItIsKept(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	r := h.problem(http.StatusConflict, "duplicate_id", http.MethodPost, "/sessions", value{"id": "a"})
	if got := h.locations(r); !slices.Contains(got, "body.id") {
		t.Errorf("got %v; want it to name body.id", got)
	}
	if h.pool.count() != 1 {
		t.Errorf("got %d places; want the first session's only", h.pool.count())
	}
	h.want(http.StatusOK, http.MethodDelete, "/sessions/a?purge=true", nil)
	h.problem(http.StatusConflict, "duplicate_id", http.MethodPost, "/sessions", value{"id": "a"})
	if h.pool.count() != 0 {
		t.Errorf("got %d places; want 0", h.pool.count())
	}
}

func TestRegisteringCanBeRetried(t *testing.T) {
	h := newHarness(t)
	body := value{"id": "a", "secret": secret, "limits": value{"max_turns": 3}}
	first := h.register(body)
	again := h.want(http.StatusOK, http.MethodPost, "/sessions", `{"wait": 5, "limits": {"max_turns": 3}, "secret": "`+secret+`", "id": "a"}`)
	for _, key := range []string{"id", "secret", "created_at", "server"} {
		if first[key] != again[key] {
			t.Errorf("%s: got %v; want %v", key, again[key], first[key])
		}
	}
	body["limits"] = value{"max_turns": 4}
	h.problem(http.StatusConflict, "duplicate_id", http.MethodPost, "/sessions", body)
	h.problem(http.StatusConflict, "duplicate_id", http.MethodPost, "/sessions", value{"id": "a", "secret": secret + "x", "limits": value{"max_turns": 3}})
	r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPost, "/sessions", value{"id": "b", "secret": secret})
	if got := h.locations(r); !slices.Contains(got, "body.secret") {
		t.Errorf("got %v; want it to name body.secret", got)
	}
	if h.pool.count() != 1 {
		t.Errorf("got %d places; want 1", h.pool.count())
	}
}

func TestRefusalsThatTimeCuresSayWhenToRetry(t *testing.T) {
	full := newHarness(t, func(r *registry.Options, _ *admin.Options) { r.MaxSessions = 1 })
	full.register(value{})
	r := full.problem(http.StatusTooManyRequests, "too_many_sessions", http.MethodPost, "/sessions", nil)
	wantRetryAfter(t, r)

	draining := newHarness(t)
	draining.registry.Drain()
	wantRetryAfter(t, draining.problem(http.StatusServiceUnavailable, "draining", http.MethodPost, "/sessions", nil))

	memory := newHarness(t, func(r *registry.Options, _ *admin.Options) { r.MaxTraceBytes = 100 })
	memory.register(value{"id": "a"})
	memory.turn("a", `{"messages":[]}`, registry.Response{Status: 200, Body: []byte(strings.Repeat("x", 1000))})
	wantRetryAfter(t, memory.problem(http.StatusServiceUnavailable, "memory_full", http.MethodPost, "/sessions", nil))

	crowded := newHarness(t)
	crowded.pool.set(func(p *pool) { p.full = true })
	wantRetryAfter(t, crowded.problem(http.StatusServiceUnavailable, "pool_waiting", http.MethodPost, "/sessions", value{"wait": 0}))
	crowded.pool.set(func(p *pool) { p.full, p.err = false, fmt.Errorf("frps is down") })
	wantRetryAfter(t, crowded.problem(http.StatusServiceUnavailable, "tunnel_failed", http.MethodPost, "/sessions", nil))
	crowded.pool.set(func(p *pool) { p.err = nil })
	crowded.register(value{"wait": 0})
}

func TestWaitingInVainSaysWhyNoServerIsReady(t *testing.T) {
	why := errors.New("srv-1 is probing: connection refused")
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) { o.Ready = func() error { return why } })
	h.pool.set(func(p *pool) { p.full = true })
	r := h.problem(http.StatusServiceUnavailable, "pool_waiting", http.MethodPost, "/sessions", value{"wait": 0})
	if got := h.decode(r.body)["detail"]; got != "no server had a place in time: "+why.Error() {
		t.Errorf("got %q", got)
	}
}

func wantRetryAfter(t *testing.T, r reply) {
	t.Helper()
	if got := r.Header.Get("Retry-After"); got == "" || got == "0" {
		t.Errorf("got Retry-After %q", got)
	}
}

func TestSummaryHasEveryField(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "labels": value{"k": "v"}, "metadata": value{"row": 42}})
	h.turn("a", `{"messages":[]}`, registry.Response{
		Status: 200, Body: []byte(`{}`), Usage: &registry.Usage{InputTokens: 10, OutputTokens: 3, CachedTokens: 4, ReasoningTokens: 1},
		WeightVersion: registry.VersionSpan{Start: registry.IntVersion(17), End: registry.StringVersion("b")},
		StartedAt:     time.Now(), Duration: 1500 * time.Millisecond,
	})
	h.fail("a", `{"messages":[]}`, registry.Failure{Kind: registry.FailureRateLimit, Status: 429, Message: "slow down"})
	got := h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil)
	for path, want := range map[string]any{
		"id": "a", "state": "active", "stop_condition": nil, "end_reason": nil, "turns": 1.0, "inflight": 0.0, "model_seconds": 1.5,
		"usage.input_tokens": 10.0, "usage.output_tokens": 3.0, "usage.cached_tokens": 4.0, "usage.reasoning_tokens": 1.0,
		"usage.billed_input_tokens": 10.0, "failed_calls.rate_limit": 1.0, "weight_version.min": 17.0, "weight_version.max": "b",
		"labels.k": "v", "metadata.row": 42.0, "server": "srv-1", "endpoint.url": "https://abc.example.net",
		"last_error.kind": "rate_limit", "last_error.status": 429.0, "last_error.message": "slow down",
	} {
		if v := at(got, strings.Split(path, ".")...); v != want {
			t.Errorf("%s: got %v; want %v", path, v, want)
		}
	}
	for _, key := range []string{"first_call_at", "last_call_at", "created_at", "expires_at"} {
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(got[key])); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, key := range []string{"stop_condition", "end_reason", "ended_at"} {
		if v, there := got[key]; !there || v != nil {
			t.Errorf("%s: got %v, %v; want null", key, v, there)
		}
	}
}

func TestSessionsThatDoNotExistAreNotFound(t *testing.T) {
	h := newHarness(t)
	for _, call := range []string{
		"GET /sessions/x", "PATCH /sessions/x", "POST /sessions/x/heartbeat", "POST /sessions/x/stop", "POST /sessions/x/rotate",
		"DELETE /sessions/x", "GET /sessions/x/trace", "GET /sessions/x/turns/0", "GET /sessions/x/turns/0/request",
		"GET /sessions/x/turns/0/response", "GET /nothing/here",
	} {
		method, path, _ := strings.Cut(call, " ")
		var body any
		if method == http.MethodPatch {
			body = "{}"
		}
		h.problem(http.StatusNotFound, "not_found", method, path, body)
	}
	r := h.problem(http.StatusMethodNotAllowed, "method_not_allowed", http.MethodPut, "/sessions", nil)
	if got := r.Header.Values("Allow"); !slices.Equal(got, []string{"GET", "HEAD", "POST"}) {
		t.Errorf("got Allow %v", got)
	}
}
