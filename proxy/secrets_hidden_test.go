package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// wantSecretless checks that an answer holds neither key.
func (a answer) wantSecretless(t *testing.T, secret string) {
	t.Helper()
	var head strings.Builder
	_ = a.Header.Write(&head)
	for _, key := range []string{secret, upstreamKey} {
		if strings.Contains(head.String(), key) || strings.Contains(string(a.body), key) {
			t.Errorf("%s is in the answer:\n%s\n%s", key, head.String(), a.body)
		}
	}
}

func linesWith(text, part string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// withoutKey makes the upstream one that needs no credential.
func (s *stack) withoutKey() {
	s.t.Helper()
	if err := s.upstreams.Put("default", upstream.Config{Replicas: []upstream.ReplicaConfig{{Name: "r0", URL: s.modelURL}}}); err != nil {
		s.t.Fatal(err)
	}
}

// R70, L58: no key is in a log, an answer, a metric or a trace, however a
// request ends. A trace-level logger writes the log of these tests.
func TestNoKeyIsShownHoweverARequestEnds(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, name := range []string{
		"openai", "vllm", "401", "407", "403", "404", "429", "500", "503", "302", "html", "error-200", "empty", "not-json",
		"truncated-length", "reset-at-once", "gzip-damaged", "br", "refuses-usage",
		"stream-abort", "stream-reset", "stream-error-first", "stream-error-after-text", "sglang-abort",
	} {
		for _, extra := range []string{"", streaming} {
			r.chat(name, extra).wantSecretless(t, r.secret)
		}
	}
	for _, body := range []string{"", "{", "[]", `{"messages":[]}`} {
		r.do(r.request(http.MethodPost, chatPath, body)).wantSecretless(t, r.secret)
	}
	wrong := r.request(http.MethodPost, chatPath, chatBody("openai", ""))
	wrong.Header.Set("Authorization", "Bearer "+r.secret+"x")
	s.do(wrong).wantSecretless(t, r.secret)
	if _, err := s.registry.End(t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	r.chat("openai", "").wantSecretless(t, r.secret)
	s.wantNoKey(r, r.secret, upstreamKey)
}

// wantNoKey checks the log, the metrics and the rollout's trace.
func (s *stack) wantNoKey(r *rollout, keys ...string) {
	s.t.Helper()
	exposition := s.exposition()
	for _, key := range keys {
		if logs := s.logs.String(); strings.Contains(logs, key) {
			s.t.Errorf("%s is in the log:\n%s", key, linesWith(logs, key))
		}
		if strings.Contains(exposition, key) {
			s.t.Errorf("%s is in the metrics:\n%s", key, linesWith(exposition, key))
		}
		for _, f := range r.trace().FailedCalls {
			if strings.Contains(f.Error.Message, key) {
				s.t.Errorf("%s is in a failed call: %s", key, f.Error.Message)
			}
		}
	}
}

// exposition is what /metrics shows.
func (s *stack) exposition() string {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	encoder := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain).WithEscapingScheme(model.NoEscaping))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			s.t.Fatal(err)
		}
	}
	return b.String()
}

// R70: an upstream's URL may hold a password.
func TestPasswordInAnUpstreamURLIsNotShown(t *testing.T) {
	const password = "hunter2-in-the-url"
	withPassword := func(raw string) string {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("user", password)
		return u.String()
	}
	s := newStack(t, at(withPassword(closedPort(t))))
	r := s.register(registry.Spec{})
	got := r.chat("openai", "")
	got.wantError(t, 502, "upstream_unreachable")
	got.wantSecretless(t, password)
	r.chat("openai", "").wantSecretless(t, password) // now without a replica
	r.do(r.request(http.MethodGet, "/v1/models", "")).wantSecretless(t, password)
	if err := s.upstreams.Put("default", upstream.Config{Replicas: []upstream.ReplicaConfig{{URL: withPassword("http://host.invalid:1")}}}); err != nil {
		t.Fatal(err)
	}
	r.chat("openai", "").wantSecretless(t, password)
	if err := s.upstreams.Put("default", upstream.Config{Replicas: []upstream.ReplicaConfig{{URL: withPassword(s.modelURL)}}}); err != nil {
		t.Fatal(err)
	}
	r.chat("reset-at-once", "").wantSecretless(t, password)
	s.wantNoKey(r, password, r.secret)
}

// R70: a panic's log line holds no key.
func TestPanicShowsNoKey(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	panics := s.handler(prometheus.NewRegistry(), proxy.Options{})
	for _, extra := range []string{"", streaming} {
		func() {
			defer func() { _ = recover() }()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, chatPath, strings.NewReader(chatBody("openai", extra)))
			req.Header.Set("Authorization", "Bearer "+r.secret)
			panics.ServeHTTP(panicWriter{http.Header{}}, req)
		}()
	}
	if n := strings.Count(s.logs.String(), `"panic"`); n != 2 {
		t.Errorf("%d panics were logged, want 2", n)
	}
	s.wantNoKey(r, r.secret, upstreamKey)
}

// panicWriter panics when the answer begins.
type panicWriter struct{ header http.Header }

func (p panicWriter) Header() http.Header     { return p.header }
func (panicWriter) Write([]byte) (int, error) { panic("the writer is broken") }
func (panicWriter) WriteHeader(int)           { panic("the writer is broken") }

// handler is a data plane over the stack's registry and upstreams, with metrics
// of its own, to be called without a server.
func (s *stack) handler(series *prometheus.Registry, options proxy.Options) http.Handler {
	s.t.Helper()
	options.Registry, options.Upstreams, options.Logger = s.registry, s.upstreams, zerolog.New(s.logs)
	var err error
	options.Metrics, err = metrics.New(series, metrics.Sources{
		Registry: s.registry.Stats, Upstreams: func() []metrics.UpstreamState { return nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := proxy.New(options)
	if err != nil {
		s.t.Fatal(err)
	}
	return p.Handler("nonce-2")
}

// The upstream's own answer is not shown when it refuses the credential, as it
// may quote it.
func TestRefusedCredentialIsShownNowhere(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, status := range []int{401, 407} {
			quoting := scripted.Error(status, []byte(`{"error":{"message":"Incorrect API key provided: `+upstreamKey+`"}}`), "X-Debug-Key", upstreamKey)
			s.model.Script("quoting", quoting)
			for _, extra := range []string{"", streaming} {
				got := r.chat("quoting", extra)
				got.wantError(s.t, 502, "upstream_auth")
				got.wantSecretless(s.t, r.secret)
			}
		}
		synctest.Wait()
		s.wantNoKey(r, upstreamKey)
	})
}
