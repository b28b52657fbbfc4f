package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// fuzzed is a data plane without sockets, and the secret of a session that has
// a model of its own, so that listing models asks no upstream.
func fuzzed(f *testing.F) (http.Handler, string) {
	f.Helper()
	sessions, err := registry.New(registry.Options{})
	if err != nil {
		f.Fatal(err)
	}
	registered, err := sessions.Register(registry.Spec{Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	instruments, err := metrics.New(prometheus.NewRegistry(), metrics.Sources{})
	if err != nil {
		f.Fatal(err)
	}
	p, err := proxy.New(proxy.Options{Registry: sessions, Upstreams: upstream.NewSet(upstream.Options{}), Metrics: instruments})
	if err != nil {
		f.Fatal(err)
	}
	return p.Handler("nonce"), registered[0].Secret
}

// Whatever the path: no redirect, no crash, nothing but the routes there are,
// and nothing without a secret.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"/", "/v1/chat/completions", "//v1//v1/models/", "/v1/models/a%2Fb/..", "/healthz?x", "/%2e%2e/", "/v1/models/%zz"} {
		f.Add(http.MethodGet, path)
		f.Add(http.MethodPost, path)
	}
	handler, _ := fuzzed(f)
	answers := []int{
		http.StatusOK, http.StatusNoContent, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed,
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, (&http.Request{Method: method, URL: u, Header: http.Header{}, Body: http.NoBody}).WithContext(t.Context()))
		if !slices.Contains(answers, w.Code) || w.Header().Get(proxy.ServerHeader) == "" {
			t.Errorf("%s %q: status %d, headers %v", method, path, w.Code, w.Header())
		}
	})
}

// A secret is found where, and only where, it stands as it may.
func FuzzBearer(f *testing.F) {
	handler, secret := fuzzed(f)
	for _, form := range []string{"Bearer %", "bearer  \t%\t", "BEARER %", "Basic %", "Bearer", "%", "Bearer % %", "Bearer\x00%", ""} {
		f.Add(form, "")
		f.Add("", form)
	}
	secretAt := regexp.MustCompile("%")
	bearer := regexp.MustCompile(`^[ \t]*(?i:bearer)[ \t]+%[ \t]*$`)
	anyBearer := regexp.MustCompile(`^[ \t]*(?i:bearer)[ \t]+[^ \t]`)
	key := regexp.MustCompile(`^[ \t]*%[ \t]*$`)
	blank := regexp.MustCompile(`^[ \t]*$`)
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		fill := func(form string) []string { return []string{secretAt.ReplaceAllString(form, secret)} }
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, (&http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/v1/models"}, Body: http.NoBody,
			Header: http.Header{"Authorization": fill(authorization), "X-Api-Key": fill(apiKey)},
		}).WithContext(t.Context()))
		want := http.StatusUnauthorized
		if bearer.MatchString(authorization) || !anyBearer.MatchString(authorization) && !blank.MatchString(apiKey) && key.MatchString(apiKey) {
			want = http.StatusOK
		}
		if w.Code != want {
			t.Errorf("Authorization %q, X-Api-Key %q: status %d, want %d", authorization, apiKey, w.Code, want)
		}
	})
}
