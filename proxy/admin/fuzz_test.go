package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// Whatever a client sends is its success or its fault, never the daemon's.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"id":"a","limits":{"max_turns":1,"max_duration":"1m"},"lease":90}`, `{"labels":{"a":null},"metadata":{"a":{"b":null}}}`,
		`{"sessions":[{},{"stop_conditions":[{"name":"a","text_regexp":"("}]}]}`, `{"template":{},"count":2,"atomic":false}`,
		`{"ids":["a"]}`, `{"labels":{"a":"b"}}`, `{"lease":1e400}`, `{"lease":"9223372036s"}`, `{"a":1,"a":2}`, "\xff", `null`, `[[[`, `{"replicas":[{"url":"http://[::1"}]}`,
		`{"weight_version":12345678901234567890}`, `{"limits":{"max_turns":20.0},"lease_seconds":1e2}`,
	} {
		f.Add(body)
	}
	reg, err := registry.New(registry.Options{MaxSessions: 100})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := reg.Register(registry.Spec{ID: "there"}); err != nil {
		f.Fatal(err)
	}
	api, err := admin.New(admin.Options{Registry: reg, Upstreams: upstream.NewSet(upstream.Options{}), Pool: newPool()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, call := range []string{
			"POST /sessions", "POST /sessions/batch", "PATCH /sessions/there", "POST /sessions/heartbeat",
			"POST /sessions/there/stop", "POST /sessions/there/heartbeat", "POST /sessions/there/rotate", "PUT /upstreams/u", "PUT /upstreams/u/weight_version", "POST /traces/query",
		} {
			method, path, _ := strings.Cut(call, " ")
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			api.Handler().ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("%s %q: got %d %s", call, body, w.Code, w.Body)
			}
		}
	})
}
