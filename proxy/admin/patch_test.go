package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

func TestMergePatchChangesWhatItNamesAndNullRemoves(t *testing.T) {
	h := newHarness(t)
	h.register(value{
		"id": "a", "labels": value{"env": "gsm8k", "group": "1"}, "metadata": value{"row": 42, "deep": value{"a": 1, "b": 2}},
		"model": "m1", "sampling": value{"temperature": 1, "top_k": 20}, "capture": value{"token_ids": true, "logprobs": true},
		"limits": value{"max_turns": 5, "max_output_tokens": 100, "max_duration": "10m"}, "lease": "2h",
	})
	got := h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{
		"labels": {"group": null, "shard": "7"}, "metadata": {"deep": {"a": null, "c": 12345678901234567890}},
		"model": null, "sampling": {"top_k": null, "seed": 7}, "capture": {"logprobs": null},
		"limits": {"max_turns": null, "max_input_tokens": 9, "max_duration": "90s"}, "lease": 600
	}`, "Content-Type", "application/merge-patch+json")
	spec := h.spec("a")
	if l := spec.Limits; l.MaxTurns != nil || *l.MaxInputTokens != 9 || *l.MaxOutputTokens != 100 || *l.MaxDuration != 90*time.Second {
		t.Errorf("got limits %+v", l)
	}
	if spec.Model != "" || spec.Lease != 10*time.Minute || len(spec.Labels) != 2 || spec.Labels["shard"] != "7" {
		t.Errorf("got model %q, lease %v, labels %v", spec.Model, spec.Lease, spec.Labels)
	}
	if len(spec.Sampling) != 2 || string(spec.Sampling["seed"]) != "7" {
		t.Errorf("got sampling %s", spec.Sampling)
	}
	if want := (registry.Capture{TokenIDs: true}); spec.Capture != want || at(got, "capture", "token_ids") != true {
		t.Errorf("got capture %+v, shown as %v", spec.Capture, got["capture"])
	}
	if want := `{"deep":{"b":2,"c":12345678901234567890},"row":42}`; string(spec.Metadata) != want {
		t.Errorf("got metadata %s; want %s", spec.Metadata, want)
	}
	if at(got, "limits", "max_turns") != nil || at(got, "limits", "max_duration_seconds") != 90.0 || got["lease_seconds"] != 600.0 {
		t.Errorf("answered %v", got)
	}

	h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"limits": null, "labels": null, "metadata": null, "sampling": null, "capture": null, "lease": null}`)
	spec = h.spec("a")
	if spec.Limits.MaxInputTokens != nil || len(spec.Labels) != 0 || len(spec.Sampling) != 0 || spec.Metadata != nil || spec.Capture != (registry.Capture{}) || spec.Lease != time.Hour {
		t.Errorf("got %+v; want nothing left but defaults", spec)
	}
}

func TestPatchOfNothingChangesNothing(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "metadata": json.RawMessage(`[1,2]`), "limits": value{"max_turns": 0}})
	h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{}`)
	if spec := h.spec("a"); *spec.Limits.MaxTurns != 0 || string(spec.Metadata) != `[1,2]` || spec.Upstream != "default" {
		t.Errorf("got %+v", spec)
	}
}

func TestBadPatchesAreRefusedByFieldAndChangeNothing(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "limits": value{"max_turns": 5}})
	for body, want := range map[string]string{
		`{"id": "b"}`: "body.id",
		`{"secret": "aaaaaaaaaaaaaaaaaaaaaaaaaa"}`: "body.secret",
		`{"stop_conditions": []}`:                  "body.stop_conditions",
		`{"limits": {"max_turns": -1}}`:            "body.limits.max_turns",
		`{"limits": {"max_inflight": 0}}`:          "body.limits.max_inflight",
		`{"limits": {"max_duration": "never"}}`:    "body.limits.max_duration",
		`{"limits": {"nope": null}}`:               "body.limits.nope",
		`{"limits": 3}`:                            "body.limits",
		`{"lease": "-1s"}`:                         "body.lease",
		`{"labels": {"a": 1}}`:                     "body.labels.a",
		`{"labels": {"a:b": "1"}}`:                 "body.labels.a:b",
		`{"upstream": "nowhere"}`:                  "body.upstream",
		`{"sampling": {"stream": true}}`:           "body.sampling.stream",
		`{"model": 1, "limits": {"max_turns": 9}}`: "body.model",
		`[]`: "body",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPatch, "/sessions/a", body)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", body, got, want)
		}
	}
	if spec := h.spec("a"); *spec.Limits.MaxTurns != 5 {
		t.Errorf("got max_turns %d; want 5", *spec.Limits.MaxTurns)
	}
	h.problem(http.StatusBadRequest, "invalid_request", http.MethodPatch, "/sessions/a", "")
}

// A field that a session is registered with can be changed, or the refusal says
// that it never can be.
func TestPatchOfWhatIsFixedSaysThatItIs(t *testing.T) {
	text, _, err := admin.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	changeable := doc.Components.Schemas["PatchSchema"].Properties
	h := newHarness(t)
	h.register(value{"id": "a"})
	var fixed []string
	for field := range doc.Components.Schemas["NewSession"].Properties {
		if _, ok := changeable[field]; ok {
			continue
		}
		fixed = append(fixed, field)
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPatch, "/sessions/a", value{field: nil, "nope": 1})
		detail := fmt.Sprint(h.decode(r.body)["detail"])
		if !strings.Contains(detail, "body."+field+": expected only when the session is registered: ") || !strings.Contains(detail, "body.nope: unexpected property") {
			t.Errorf("%s: got %q", field, detail)
		}
	}
	slices.Sort(fixed)
	if want := []string{"affinity", "id", "on_endpoint_loss", "sampling_mode", "secret", "stop_conditions", "user", "wait"}; !slices.Equal(fixed, want) {
		t.Errorf("got %v; want %v", fixed, want)
	}
}

func TestPatchNeverRevives(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	h.want(http.StatusOK, http.MethodPost, "/sessions/a/stop", nil)
	got := h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"limits": {"max_turns": 50}}`)
	if got["state"] != "stopped" || got["stop_condition"] != "admin_stop" {
		t.Errorf("got %v, %v", got["state"], got["stop_condition"])
	}
	h.want(http.StatusOK, http.MethodDelete, "/sessions/a", nil)
	h.problem(http.StatusGone, "session_ended", http.MethodPatch, "/sessions/a", `{}`)
}

func TestPatchOfOtherFieldsOutlivesTheUpstream(t *testing.T) {
	h := newHarness(t)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", value{"replicas": []value{{"url": "http://127.0.0.1:9"}}})
	h.register(value{"id": "a", "upstream": "eu"})
	h.want(http.StatusNoContent, http.MethodDelete, "/upstreams/eu", nil)
	got := h.want(http.StatusOK, http.MethodPatch, "/sessions/a", value{"labels": value{"k": "v"}})
	if at(got, "labels", "k") != "v" {
		t.Errorf("got %v", got)
	}
	h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodPatch, "/sessions/a", value{"upstream": "gone"})
}
