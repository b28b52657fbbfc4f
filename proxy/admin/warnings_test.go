package admin_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// wantWarnings checks that an answer warns of these fields and of nothing else.
func wantWarnings(t *testing.T, name string, answer value, fields ...string) {
	t.Helper()
	got, ok := answer["warnings"].([]any)
	if !ok || len(got) != len(fields) {
		t.Errorf("%s: got warnings %v; want them of %v", name, answer["warnings"], fields)
		return
	}
	for i, field := range fields {
		if text, _ := got[i].(string); !strings.HasPrefix(text, field+": ") {
			t.Errorf("%s: got %q; want it of %s", name, text, field)
		}
	}
}

func (h *harness) putUpstream(name string, more value) {
	h.t.Helper()
	body := value{"replicas": []value{{"url": "http://127.0.0.1:9"}}}
	maps.Copy(body, more)
	h.want(http.StatusOK, http.MethodPut, "/upstreams/"+name, body)
}

// A training run that captures token ids of an upstream that is asked for none is
// told when it registers, and whenever it looks.
func TestCaptureWithoutEffectIsWarnedOf(t *testing.T) {
	h := newHarness(t)
	captures := value{"token_ids": true, "logprobs": true}
	h.putUpstream("default", nil)
	h.putUpstream("engine", value{"style": "vllm"})
	const ids = "capture.token_ids"

	wantWarnings(t, "registering", h.register(value{"id": "a", "capture": captures}), ids)
	wantWarnings(t, "without capture", h.register(value{"id": "bare"}))
	wantWarnings(t, "at an engine", h.register(value{"capture": captures, "upstream": "engine"}))
	wantWarnings(t, "asking by itself", h.register(value{"capture": captures, "sampling": value{"return_token_ids": true}}))
	batch := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", value{"sessions": []value{{"capture": captures}, {}, {"capture": captures, "upstream": "engine"}}})
	for i, fields := range [][]string{{ids}, nil, nil} {
		wantWarnings(t, "batch", batch["sessions"].([]any)[i].(value), fields...)
	}
	many := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", value{"template": value{"capture": captures}, "count": 16})
	wantWarnings(t, "template", many["sessions"].([]any)[15].(value), ids)
	if got := strings.Count(h.log.String(), `"level":"warn"`); got != 3 || !strings.Contains(h.log.String(), `"sessions":16,"warning":"capture.token_ids: `) {
		t.Errorf("got %d warnings in the log; want one for each registering request that is warned:\n%s", got, h.log.String())
	}

	wantWarnings(t, "GET", h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil), ids)
	wantWarnings(t, "rotate", h.want(http.StatusOK, http.MethodPost, "/sessions/a/rotate", nil), ids)
	for style, fields := range map[string][]string{"vllm": nil, "sglang": nil, "anthropic": {ids}, "openai": {ids}} {
		h.putUpstream("default", value{"style": style})
		wantWarnings(t, style, h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil), fields...)
	}
	h.putUpstream("default", nil)
	wantWarnings(t, "PATCH to an engine", h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"upstream": "engine"}`))
	wantWarnings(t, "PATCH back", h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"upstream": null}`), ids)
	wantWarnings(t, "PATCH of capture", h.want(http.StatusOK, http.MethodPatch, "/sessions/a", `{"capture": {"token_ids": null}}`))
	wantWarnings(t, "PATCH of another", h.want(http.StatusOK, http.MethodPatch, "/sessions/bare", `{"capture": {"token_ids": true}}`), ids)
	wantWarnings(t, "stop", h.want(http.StatusOK, http.MethodPost, "/sessions/bare/stop", nil), ids)
	h.want(http.StatusOK, http.MethodDelete, "/sessions/bare", nil)
	wantWarnings(t, "ended", h.want(http.StatusOK, http.MethodGet, "/sessions/bare", nil))
}

func TestWhatTheUpstreamHasRefusedIsWarnedOf(t *testing.T) {
	h := newHarness(t)
	h.putUpstream("default", value{"style": "vllm"})
	h.register(value{"id": "a", "capture": value{"token_ids": true, "logprobs": true}, "limits": value{"max_total_tokens": 1000}})
	h.register(value{"id": "bare"})
	u, _ := h.upstreams.Get("default")
	u.Refuse(dialect.Added{TokenIDs: true, Logprobs: true, Usage: true}.Bits())
	wantWarnings(t, "refused", h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil), "capture.token_ids", "capture.logprobs", "limits")
	wantWarnings(t, "that asks for nothing", h.want(http.StatusOK, http.MethodGet, "/sessions/bare", nil))
	h.putUpstream("default", value{"style": "vllm", "usage": "never"})
	wantWarnings(t, "put again", h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil), "limits")
}

// A limit on tokens cannot hold where none are reported.
func TestTokenLimitThatCountsNothingIsWarnedOf(t *testing.T) {
	h := newHarness(t)
	h.putUpstream("default", nil)
	h.register(value{"id": "limited", "limits": value{"max_total_tokens": 1000}})
	h.register(value{"id": "free"})
	counted := registry.Response{Status: http.StatusOK, Body: []byte(`{}`), Usage: &registry.Usage{InputTokens: 3, OutputTokens: 2}}
	for _, id := range []string{"limited", "free"} {
		h.turn(id, `{"messages":[]}`, counted)
		wantWarnings(t, id+" and counted", h.want(http.StatusOK, http.MethodGet, "/sessions/"+id, nil))
		h.turn(id, `{"messages":[]}`, registry.Response{Status: http.StatusOK, Body: []byte(`{}`)})
	}
	wantWarnings(t, "limited", h.want(http.StatusOK, http.MethodGet, "/sessions/limited", nil), "limits")
	wantWarnings(t, "free", h.want(http.StatusOK, http.MethodGet, "/sessions/free", nil))
}

// The format of a harness is known once it has called.
func TestTurnsThatASettingDoesNotReachAreWarnedOf(t *testing.T) {
	h := newHarness(t)
	h.putUpstream("default", value{"style": "sglang"})
	h.register(value{"id": "a", "capture": value{"token_ids": true, "logprobs": true}})
	h.register(value{"id": "u", "user": value{"url": "http://localhost:9100/user"}})
	h.register(value{"id": "bare"})
	for _, turn := range []struct {
		dialect string
		stream  bool
		a, u    []string
	}{
		{"chat", false, nil, nil},
		{"completions", true, nil, []string{"user"}},
		{"chat", true, []string{"capture.token_ids"}, []string{"user"}},
		{"messages", false, []string{"capture.token_ids", "capture.logprobs"}, []string{"user"}},
	} {
		for id, fields := range map[string][]string{"a": turn.a, "u": turn.u, "bare": nil} {
			s, err := h.registry.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			call, err := s.Admit(t.Context(), registry.CallInfo{Dialect: turn.dialect})
			if err != nil {
				t.Fatal(err)
			}
			call.Record(registry.Request{Body: []byte(`{"messages":[]}`)})
			if _, err := call.Commit(registry.Response{Status: http.StatusOK, Body: []byte(`{}`), Stream: turn.stream}); err != nil {
				t.Fatal(err)
			}
			call.Close()
			wantWarnings(t, id+" after "+turn.dialect, h.want(http.StatusOK, http.MethodGet, "/sessions/"+id, nil), fields...)
		}
	}
}

func TestUpstreamThatIsNotThereIsWarnedOf(t *testing.T) {
	h := newHarness(t)
	wantWarnings(t, "before it is", h.register(value{"id": "a"}), "upstream")
	h.putUpstream("default", nil)
	wantWarnings(t, "once it is", h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil))
	h.want(http.StatusNoContent, http.MethodDelete, "/upstreams/default", nil)
	wantWarnings(t, "once it is gone", h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil), "upstream")
}
