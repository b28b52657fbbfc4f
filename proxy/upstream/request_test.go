package upstream_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func TestOnlyTheUpstreamsCredentialGoesUp(t *testing.T) {
	for _, c := range []struct {
		style upstream.Style
		key   string
		user  string
		want  map[string]string
	}{
		{upstream.StyleOpenAI, "key", "", map[string]string{"Authorization": "Bearer key"}},
		{"", "key", "", map[string]string{"Authorization": "Bearer key"}},
		{upstream.StyleVLLM, "key", "", map[string]string{"Authorization": "Bearer key"}},
		{upstream.StyleSGLang, "key", "", map[string]string{"Authorization": "Bearer key"}},
		{upstream.StyleAnthropic, "key", "", map[string]string{"X-Api-Key": "key", "Anthropic-Version": "2023-06-01"}},
		{upstream.StyleOpenAI, "", "", nil},
		{upstream.StyleAnthropic, "", "", map[string]string{"Anthropic-Version": "2023-06-01"}},
		{upstream.StyleOpenAI, "", "u:p@", map[string]string{"Authorization": "Basic dTpw"}},
		{upstream.StyleOpenAI, "key", "u:p@", map[string]string{"Authorization": "Bearer key"}},
	} {
		var got http.Header
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			answer(w, r)
		})
		config := replicas(strings.Replace(server.URL, "//", "//"+c.user, 1))
		config.Style, config.APIKey = c.style, c.key
		_, u := newUpstream(t, upstream.Options{}, config)
		r := chat("{}")
		r.Header.Set("Authorization", "Bearer mxp_secret")
		r.Header.Set("X-Api-Key", "mxp_secret")
		r.Header.Set("Api-Key", "mxp_secret")
		r.Header.Set("OpenAI-Beta", "assistants=v2")
		send(t, u, r)
		for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Anthropic-Version"} {
			if got.Get(name) != c.want[name] {
				t.Errorf("style %q, key %q, user %q: %s is %q, want %q", c.style, c.key, c.user, name, got.Get(name), c.want[name])
			}
		}
		for name, values := range got {
			if strings.Contains(strings.Join(values, " "), "mxp_secret") {
				t.Errorf("the harness's secret went up as %s", name)
			}
		}
		if got.Get("Openai-Beta") != "assistants=v2" {
			t.Errorf("openai-beta is %q", got.Get("Openai-Beta"))
		}
		if got.Get("Accept-Encoding") != "identity" {
			t.Errorf("accept-encoding is %q, want identity", got.Get("Accept-Encoding"))
		}
		if _, ok := got["User-Agent"]; ok {
			t.Errorf("user-agent %q was invented", got.Get("User-Agent"))
		}
	}
}

func TestHeadersOfTheHarnessAndTheConfiguration(t *testing.T) {
	for name, encrypted := range map[string]bool{"HTTP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var got http.Request
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = *r
				answer(w, r)
			})
			var o upstream.Options
			var server *httptest.Server
			if encrypted {
				server, o = secure(t, handler, false)
			} else {
				server = serve(t, handler)
			}
			config := replicas(server.URL)
			config.Style, config.APIKey = upstream.StyleAnthropic, "key"
			config.Headers = map[string]string{"x-api-key": "other", "Host": "models.example", "anthropic-beta": "b"}
			_, u := newUpstream(t, o, config)
			r := chat(`{"a":1}`)
			r.RawQuery = "a=1&a=%2F"
			r.Affinity, r.SessionHeader, r.ID = "group-42", "X-Session-ID", "req_1"
			for name, value := range map[string]string{
				"User-Agent": "harness/1", "Anthropic-Version": "2030-01-01", "Anthropic-Beta": "a", "X-Session-ID": "forged",
				"Idempotency-Key": "i", "X-Request-Id": "req_of_harness", "X-Withheld": "w",
			} {
				r.Header.Set(name, value)
			}
			r.Passes = func(name string, _ []string) bool { return name != "X-Withheld" }
			asked := r.Header.Clone()
			send(t, u, r)
			for name, want := range map[string]string{
				"X-Api-Key": "other", "Anthropic-Beta": "b", "Anthropic-Version": "2030-01-01", "User-Agent": "harness/1",
				"X-Session-Id": "group-42", "Idempotency-Key": "i", "Content-Length": "7", "X-Request-Id": "req_1", "X-Withheld": "",
			} {
				if v := strings.Join(got.Header.Values(name), "|"); v != want {
					t.Errorf("%s is %q, want %q", name, v, want)
				}
			}
			if got.Host != "models.example" {
				t.Errorf("host is %q", got.Host)
			}
			if got.RequestURI != "/v1/chat/completions?a=1&a=%2F" {
				t.Errorf("request target is %q", got.RequestURI)
			}
			if !reflect.DeepEqual(r.Header, asked) {
				t.Errorf("the harness's header has become %v; want %v", r.Header, asked)
			}
		})
	}
}

func TestRedirectsAndCompressedAnswersComeBackAsTheyAre(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/moved" {
			http.Redirect(w, r, "/v1/chat/completions", http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 1, 2})
	})
	_, u := newUpstream(t, upstream.Options{}, replicas(server.URL))
	r := chat("{}")
	r.Path = "/v1/moved"
	if _, status := send(t, u, r); status != http.StatusTemporaryRedirect {
		t.Errorf("status %d, want 307", status)
	}
	res, err := u.Send(t.Context(), chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if body := finish(t, res); body != "\x1f\x8b\x01\x02" || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %q with coding %q", body, res.Header.Get("Content-Encoding"))
	}
}

func TestSmallRequestLeavesInOneWrite(t *testing.T) {
	var counts counting
	server := serve(t, answer)
	_, u := newUpstream(t, upstream.Options{Dial: counts.dial}, replicas(server.URL))
	const calls = 10
	for range calls {
		send(t, u, chat(repeat("x", 2048)))
	}
	counts.mu.Lock()
	defer counts.mu.Unlock()
	if len(counts.writes) != calls {
		t.Errorf("%d calls of 2 KB took %d writes: %v", calls, len(counts.writes), counts.writes)
	}
}

// secure serves over TLS, and gives options that trust it.
func secure(tb testing.TB, h http.Handler, http2 bool) (*httptest.Server, upstream.Options) {
	tb.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	tb.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server, upstream.Options{TLS: &tls.Config{RootCAs: roots}}
}

// secureServer echoes bodies over TLS, and gives options that trust it.
func secureServer(tb testing.TB, http2 bool) (url string, o upstream.Options) {
	tb.Helper()
	server, o := secure(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Idempotency", r.Header.Get("Idempotency-Key"))
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}), http2)
	return server.URL, o
}

// R95.
func TestParallelCallsOverTLS(t *testing.T) {
	for _, c := range []struct {
		http2 bool
		proto string
	}{{true, "HTTP/2.0"}, {false, "HTTP/1.1"}} {
		url, options := secureServer(t, c.http2)
		set, u := newUpstream(t, options, replicas(url))
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for range 5 {
					want := repeat(fmt.Sprintf("%04d", i), 64<<10)
					r := chat(want)
					r.Header.Set("Idempotency-Key", "i")
					res, err := u.Send(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					if got := finish(t, res); got != want || res.Header.Get("X-Proto") != c.proto || res.Header.Get("X-Idempotency") != "i" {
						t.Errorf("call %d got %d bytes over %s, key %q", i, len(got), res.Header.Get("X-Proto"), res.Header.Get("X-Idempotency"))
					}
				}
			})
		}
		wg.Wait()
		set.Close()
	}
}

func TestHTTPProxy(t *testing.T) {
	replica, options := secureServer(t, true)
	var refuse atomic.Bool
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || refuse.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		tunnel(w, r.Host)
	})
	options.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	set, u := newUpstream(t, options, replicas(replica))
	if _, status := send(t, u, chat("{}")); status != http.StatusOK {
		t.Errorf("status %d through the proxy", status)
	}
	set.Close()
	refuse.Store(true)
	_, err := u.Send(t.Context(), chat("{}"))
	wantDialError(t, err, false)
}

// tunnel connects the client to host.
func tunnel(w http.ResponseWriter, host string) {
	out, err := net.Dial("tcp", host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer out.Close()
	w.WriteHeader(http.StatusOK)
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(out, buffered)
		_ = out.Close()
	})
	_, _ = io.Copy(in, out)
	_ = in.Close()
	wg.Wait()
}

func TestUntrustedCertificateIsADialError(t *testing.T) {
	url, _ := secureServer(t, true)
	set, u := newUpstream(t, upstream.Options{}, replicas(url))
	_, err := u.Send(t.Context(), chat("{}"))
	wantDialError(t, err, false)
	if s := set.List()[0].Replicas[0]; s.State != upstream.StateDown || s.LastError == "" {
		t.Errorf("replica is %+v, want down with an error", s)
	}
}

func TestClosingABodyAgainFreesThePlaceOnce(t *testing.T) {
	server := serve(t, answer)
	set, u := newUpstream(t, upstream.Options{}, replicas(server.URL))
	var open []*upstream.Response
	for range 3 {
		res, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, res)
	}
	for i, res := range open {
		finish(t, res)
		if err := res.Body.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if got, want := inflight(set), len(open)-i-1; got != want {
			t.Errorf("%d in flight, want %d", got, want)
		}
	}
}

func TestWeightVersionAtDispatchAndNow(t *testing.T) {
	release := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
		<-release
		answer(w, r)
	})
	config := replicas(server.URL)
	config.Replicas[0].Name = "r1"
	set, u := newUpstream(t, upstream.Options{}, config)
	one, two := registry.IntVersion(1), registry.StringVersion("two")
	if err := u.SetWeightVersion("", one); err != nil {
		t.Fatal(err)
	}
	res, err := u.Send(t.Context(), chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, set, config)
	if err := u.SetWeightVersion("r1", two); err != nil {
		t.Fatal(err)
	}
	close(release)
	finish(t, res)
	if res.Version != one || res.CurrentVersion() != two {
		t.Errorf("got %v to %v, want 1 to two", res.Version, res.CurrentVersion())
	}
	if err := u.SetWeightVersion("r2", two); err == nil {
		t.Error("a version was set for a replica that does not exist")
	}
	if got := set.List()[0].Replicas[0].WeightVersion; got != two {
		t.Errorf("list shows %v", got)
	}
}
