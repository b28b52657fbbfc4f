package admin_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// settingsOf are the settings in an answer, as JSON.
func settingsOf(t *testing.T, answer value) string {
	t.Helper()
	shown := value{}
	for _, name := range []string{"upstream", "affinity", "model", "sampling", "sampling_mode", "limits", "stop_conditions", "on_endpoint_loss", "lease_seconds"} {
		v, ok := answer[name]
		if !ok {
			t.Errorf("%s is not shown", name)
		}
		shown[name] = v
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const (
	bareSettings = `{"affinity":"bare","lease_seconds":3600,"limits":{},"model":null,"on_endpoint_loss":"stop","sampling":{},"sampling_mode":"override","stop_conditions":[],"upstream":"default"}`
	fullSettings = `{"affinity":"g","lease_seconds":60,"limits":{"max_duration_seconds":90,"max_inflight":2,"max_turns":0},"model":"m","on_endpoint_loss":"keep",` +
		`"sampling":{"top_k":20},"sampling_mode":"default",` +
		`"stop_conditions":[{"name":"submitted","tool_call":"submit"},{"name":"gave_up","text_regexp":"I (can|will) not"}],"upstream":"default"}`
)

func TestEverySettingIsShown(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "bare"})
	h.register(value{
		"id": "full", "affinity": "g", "model": "m", "sampling": value{"top_k": 20}, "sampling_mode": "default", "lease": 60, "on_endpoint_loss": "keep",
		"limits":          value{"max_turns": 0, "max_inflight": 2, "max_duration": "90s"},
		"stop_conditions": []value{{"name": "submitted", "tool_call": "submit"}, {"name": "gave_up", "text_regexp": "I (can|will) not"}},
	})
	for id, want := range map[string]string{"bare": bareSettings, "full": fullSettings} {
		for answer, got := range map[string]value{
			"GET":   h.want(http.StatusOK, http.MethodGet, "/sessions/"+id, nil),
			"PATCH": h.want(http.StatusOK, http.MethodPatch, "/sessions/"+id, `{}`),
			"trace": at(h.want(http.StatusOK, http.MethodGet, "/sessions/"+id+"/trace", nil), "settings").(value),
			"query": at(h.want(http.StatusOK, http.MethodPost, "/traces/query", value{"ids": []string{id}}), "settings").(value),
			"stop":  h.want(http.StatusOK, http.MethodPost, "/sessions/"+id+"/stop", nil),
		} {
			if shown := settingsOf(t, got); shown != want {
				t.Errorf("%s of %s: got %s\nwant %s", answer, id, shown, want)
			}
		}
	}
}

func TestTraceSaysUnderWhichRulesItWasMade(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "limits": value{"max_turns": 5}})
	h.turn("a", `{"messages":[]}`, registry.Response{Status: http.StatusOK, Body: []byte(`{}`)})
	h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"limits": {"max_turns": 9}, "model": "m2"}`)
	ended := h.want(http.StatusOK, http.MethodDelete, "/sessions/a?trace=true&purge=true", nil)
	if at(ended, "settings", "limits", "max_turns") != 9.0 || at(ended, "settings", "model") != "m2" || at(ended, "session", "turns") != 1.0 {
		t.Errorf("got %v", ended)
	}
	gone := h.want(http.StatusOK, http.MethodDelete, "/sessions/a?trace=true", nil)
	if rules, there := gone["settings"]; !there || rules != nil {
		t.Errorf("got %v; want settings null with the trace gone", gone)
	}
}
