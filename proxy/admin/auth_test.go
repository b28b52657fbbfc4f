package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

func TestWithoutTheTokenEveryPathAnswersTheSame401(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "there"})
	var first string
	for _, auth := range []string{"", "Bearer", "Bearer wrong", "Bearer " + token + "x", "Basic " + token, token, "bearer\t" + token} {
		for _, call := range []string{
			"GET /sessions/there", "GET /sessions/not-there", "POST /sessions", "GET /no/such/path", "PATCH /nonsense",
			"DELETE /sessions/there", "GET /upstreams", "GET /sessions/there/trace",
		} {
			method, path, _ := strings.Cut(call, " ")
			r := h.problem(http.StatusUnauthorized, "unauthorized", method, path, "{not even json", "Authorization", auth)
			if got := r.Header.Get("WWW-Authenticate"); got != `Bearer realm="muxproxy"` {
				t.Errorf("got WWW-Authenticate %q", got)
			}
			if first == "" {
				first = string(r.body)
			}
			if string(r.body) != first {
				t.Errorf("%s with %q: got %s; want %s", call, auth, r.body, first)
			}
		}
	}
	h.want(http.StatusOK, http.MethodGet, "/sessions/there", nil, "Authorization", "bearer   "+token+" ")
}

func TestHealthNeedsNoToken(t *testing.T) {
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) {
		o.Version = "1.2.3"
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") })
	})
	got := h.want(http.StatusOK, http.MethodGet, "/healthz", nil, "Authorization", "")
	if got["status"] != "ok" || got["version"] != "1.2.3" {
		t.Errorf("got %v", got)
	}
	h.want(http.StatusOK, http.MethodGet, "/readyz", nil, "Authorization", "")
	if r := h.do(http.MethodGet, "/metrics", nil, "Authorization", ""); string(r.body) != "up 1\n" {
		t.Errorf("got %s", r.body)
	}
	if r := h.do(http.MethodHead, "/healthz", nil, "Authorization", ""); r.StatusCode != http.StatusOK {
		t.Errorf("HEAD: got %d", r.StatusCode)
	}
}

func TestMetricsAskForTheTokenWhereThatIsConfigured(t *testing.T) {
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) {
		o.MetricsAuth = true
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") })
	})
	h.problem(http.StatusUnauthorized, "unauthorized", http.MethodGet, "/metrics", nil, "Authorization", "")
	if r := h.do(http.MethodGet, "/metrics", nil); string(r.body) != "up 1\n" {
		t.Errorf("got %s", r.body)
	}
}

func TestNotReadySaysWhy(t *testing.T) {
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) {
		o.Ready = func() error { return fmt.Errorf("shutting down") }
	})
	r := h.problem(http.StatusServiceUnavailable, "not_ready", http.MethodGet, "/readyz", nil, "Authorization", "")
	wantRetryAfter(t, r)
	if got := h.decode(r.body)["detail"]; got != "shutting down" {
		t.Errorf("got %v", got)
	}
}

func TestWithoutAConfiguredTokenNothingAsksForOne(t *testing.T) {
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) { o.Token = "" })
	h.want(http.StatusOK, http.MethodGet, "/sessions", nil, "Authorization", "")
}

func TestSecretsAreShownOnceAndNeverLogged(t *testing.T) {
	h := newHarness(t)
	const key, header, password = "sk-upstream-key-of-the-test", "header-value-of-the-test", "password-of-the-test"
	made := h.register(value{"id": "made"})["secret"].(string)
	h.register(value{"id": "given", "secret": secret})
	rotated := h.want(http.StatusOK, http.MethodPost, "/sessions/given/rotate", nil)["secret"].(string)
	upstream := value{
		"replicas": []value{{"url": "http://user:" + password + "@127.0.0.1:9"}}, "api_key": key, "headers": value{"X-Extra": header},
	}
	bad := value{"replicas": []value{{"url": "ftp://user:" + password + "@h"}}, "api_key": key, "headers": value{"X-Extra": header + "\n"}}
	short := "short-" + secret[:4]
	replies := []reply{
		h.do(http.MethodPut, "/upstreams/default", upstream), h.do(http.MethodPut, "/upstreams/default", bad),
		h.do(http.MethodPut, "/upstreams/default", value{"api_key": key}), h.do(http.MethodGet, "/upstreams", nil),
		h.do(http.MethodPut, "/upstreams/default", `{"api_key": "`+key+`"`),
		h.do(http.MethodGet, "/sessions", nil), h.do(http.MethodGet, "/sessions/made", nil), h.do(http.MethodGet, "/sessions/given", nil),
		h.do(http.MethodPatch, "/sessions/given", value{"secret": rotated}), h.do(http.MethodPost, "/sessions", value{"secret": short}),
		h.do(http.MethodPost, "/sessions", value{"id": "x", "secret": rotated}), h.do(http.MethodPost, "/sessions", value{"sekret": secret}),
		h.do(http.MethodPost, "/sessions", `{"secret": "`+secret+`"`), h.do(http.MethodPost, "/sessions/given/heartbeat", nil),
		h.do(http.MethodGet, "/sessions/given/trace", nil), h.do(http.MethodPost, "/sessions/given/stop", nil),
		h.do(http.MethodDelete, "/sessions/given?trace=true", nil), h.do(http.MethodPost, "/traces/query", value{"ids": []string{"made"}}),
		h.do(http.MethodGet, "/sessions", nil, "Authorization", "Bearer "+token+"-wrong"),
	}
	for _, s := range []string{made, secret, rotated, key, header, password, short, token} {
		for _, r := range replies {
			if strings.Contains(string(r.body), s) {
				t.Errorf("%s %s shows %q: %s", r.Request.Method, r.Request.URL.Path, s, r.body)
			}
		}
		if strings.Contains(h.log.String(), s) {
			t.Errorf("the log shows %q: %s", s, h.log)
		}
	}
	if !strings.Contains(h.log.String(), `"route":"/sessions/{id}"`) {
		t.Errorf("the log has no line for a request: %s", h.log)
	}
}

func TestHealthAndMetricsTakeParametersOfOthers(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) { o.Metrics = metrics })
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for _, query := range []string{"?probe=1", "?t=1&t=2", "?%zz"} {
			if r := h.do(http.MethodGet, path+query, nil); r.StatusCode != http.StatusOK {
				t.Errorf("%s%s: got %d; want 200", path, query, r.StatusCode)
			}
		}
	}
}
