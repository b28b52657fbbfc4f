package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func Example() {
	sessions, err := registry.New(registry.Options{})
	if err != nil {
		panic(err)
	}
	api, err := admin.New(admin.Options{
		Registry: sessions, Upstreams: upstream.NewSet(upstream.Options{}), Pool: newPool(), Token: "secret",
	})
	if err != nil {
		panic(err)
	}

	r := httptest.NewRequest(http.MethodPost, "/sessions", strings.NewReader(`{"id": "rollout-1", "limits": {"max_turns": 20}}`))
	r.Header.Set("Authorization", "Bearer secret")
	w := httptest.NewRecorder()
	api.Handler().ServeHTTP(w, r)

	s, err := sessions.Get("rollout-1")
	if err != nil {
		panic(err)
	}
	fmt.Println(w.Code, s.State(), *s.Spec().Limits.MaxTurns)
	// Output: 201 active 20
}
