package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// Every way in which an upstream can fail before anything was sent to the
// client: what the harness is told, and what the trace and the metrics say.
func TestUpstreamFaultsBecomeTheirStatus(t *testing.T) {
	chat := scripted.Fixture("openai/chat.json")
	half := chat[:len(chat)/2]
	for model, want := range map[string]struct {
		status   int
		code     string // "" is the upstream's own body
		body     []byte
		kind     registry.FailureKind
		outcome  string
		received []byte
	}{
		"close-at-once":     {502, "upstream_unreachable", nil, registry.FailureConnection, "connection", nil},
		"reset-at-once":     {502, "upstream_unreachable", nil, registry.FailureConnection, "connection", nil},
		"reset-json":        {502, "upstream_invalid", nil, registry.FailureUpstreamTruncated, "upstream_truncated", half},
		"truncated-length":  {502, "upstream_invalid", nil, registry.FailureUpstreamTruncated, "upstream_truncated", half},
		"truncated-chunked": {502, "upstream_invalid", nil, registry.FailureUpstreamTruncated, "upstream_truncated", half},
		"truncated-clean":   {502, "upstream_invalid", nil, registry.FailureUpstreamTruncated, "upstream_truncated", half},
		"empty":             {502, "upstream_invalid", nil, registry.FailureUpstreamTruncated, "upstream_truncated", nil},
		"not-json":          {502, "upstream_invalid", nil, registry.FailureUpstreamError, "upstream_error", []byte("upstream said something else\n")},
		"html":              {502, "upstream_invalid", nil, registry.FailureUpstreamError, "upstream_error", nil},
		"302":               {502, "upstream_invalid", nil, registry.FailureUpstreamError, "upstream_error", nil},
		"br":                {502, "upstream_invalid", nil, registry.FailureUpstreamError, "upstream_error", nil},
		"401":               {502, "upstream_auth", nil, registry.FailureAuth, "upstream_error", nil},
		"407":               {502, "upstream_auth", nil, registry.FailureAuth, "upstream_error", nil},
		"403":               {403, "", scripted.Fixture("errors/403.json"), registry.FailureAuth, "upstream_error", scripted.Fixture("errors/403.json")},
		"404":               {404, "", scripted.Fixture("errors/404.json"), registry.FailureClientError, "client_error", scripted.Fixture("errors/404.json")},
		"404-vllm":          {404, "", scripted.Fixture("errors/404-vllm.json"), registry.FailureClientError, "client_error", scripted.Fixture("errors/404-vllm.json")},
		"gzip-error":        {404, "", scripted.Fixture("errors/404.json"), registry.FailureClientError, "client_error", scripted.Fixture("errors/404.json")},
		"429":               {429, "", scripted.Fixture("errors/429.json"), registry.FailureRateLimit, "client_error", scripted.Fixture("errors/429.json")},
		"500":               {500, "", scripted.Fixture("errors/500.json"), registry.FailureUpstreamError, "upstream_error", scripted.Fixture("errors/500.json")},
		"503":               {503, "", scripted.Fixture("errors/503.html"), registry.FailureUpstreamError, "upstream_error", scripted.Fixture("errors/503.html")},
		"529":               {529, "", scripted.Fixture("anthropic/529.json"), registry.FailureUpstreamError, "upstream_error", scripted.Fixture("anthropic/529.json")},
		"error-200":         {200, "", scripted.Fixture("json/error-200.json"), registry.FailureUpstreamError, "upstream_error", scripted.Fixture("json/error-200.json")},
		"sglang-abort":      {503, "upstream_unavailable", nil, registry.FailureAborted, "aborted", scripted.Fixture("sglang/abort.json")},
	} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			got := r.chat(model, "")
			if want.code != "" {
				got.wantError(s.t, want.status, want.code)
			} else if got.StatusCode != want.status || !bytes.Equal(got.body, want.body) || got.err != nil {
				s.t.Errorf("got %d, %v\n%s\nwant %d\n%s", got.StatusCode, got.err, got.body, want.status, want.body)
			}
			if got.Header.Get("Content-Encoding") != "" {
				s.t.Errorf("the answer says to be coded as %s", got.Header.Get("Content-Encoding"))
			}
			r.wantTurns(0, want.kind)
			s.wantLogged(logged{Outcome: want.outcome, Status: want.status})
			if failures := r.trace().FailedCalls; len(failures) == 1 {
				f := failures[0]
				if !bytes.Equal(f.Received, want.received) || f.Error.Status != saidStatus(model, want.status, want.code) || f.Error.Message == "" || string(f.Request()) != chatBody(model, "") {
					s.t.Errorf("the failed call is %+v, received\n%s\nwant status %d and\n%s", f.Error, f.Received, want.status, want.received)
				}
			}
			if n := len(s.model.Requests()); n != 1 { // R90, L29
				s.t.Errorf("the upstream got %d requests, want 1", n)
			}
			if u := r.session.Summary(); u.Turns != 0 || u.State != registry.StateActive || u.Usage.OutputTokens != 0 {
				s.t.Errorf("the session is %+v", u)
			}
			s.wantIdle()
			if s.t.Failed() {
				s.t.Fatalf("script %s", model)
			}
		})
	}
}

// The body of a refused credential is not shown, nor what it asks for.
func TestAnswerToARefusedCredentialIsNotShown(t *testing.T) {
	bubble(t, func(s *stack) {
		for _, status := range []int{401, 407} {
			s.model.Script("echo", scripted.Error(status, []byte(`{"error":{"message":"Incorrect API key: `+upstreamKey+`"}}`),
				"Www-Authenticate", "Bearer realm=\""+upstreamKey+"\"", "Proxy-Authenticate", "Basic", "X-Key", upstreamKey))
			r := s.register(registry.Spec{})
			for _, extra := range []string{"", streaming} {
				got := r.chat("echo", extra)
				got.wantError(s.t, 502, "upstream_auth")
				if got.Header.Get("X-Should-Retry") != "false" {
					s.t.Error("the harness may think that a retry helps")
				}
				var header strings.Builder
				if err := got.Header.Write(&header); err != nil {
					s.t.Fatal(err)
				}
				for name, text := range map[string]string{"body": string(got.body), "header": header.String(), "log": s.logs.String()} {
					if strings.Contains(text, upstreamKey) {
						s.t.Errorf("the %s shows the key: %s", name, text)
					}
				}
			}
			for _, failed := range r.trace().FailedCalls {
				if bytes.Contains(failed.Received, []byte(upstreamKey)) || strings.Contains(failed.Error.Message, upstreamKey) {
					s.t.Errorf("the trace keeps the key: %s", failed.Received)
				}
			}
		}
	})
}

// R92, L29: a 429 passes with its headers, after one call.
func TestRateLimitPassesWithItsHeaders(t *testing.T) {
	bubble(t, func(s *stack) {
		for _, extra := range []string{"", streaming} {
			r := s.register(registry.Spec{})
			s.model.Forget()
			got := r.chat("429", extra)
			for name, want := range map[string]string{
				"Retry-After": "1", "Retry-After-Ms": "50", "X-Ratelimit-Limit-Requests": "500",
				"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1s", "Content-Type": "application/json",
			} {
				if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
					s.t.Errorf("%s is %q, want %q", name, values, want)
				}
			}
			if n := len(s.model.Requests()); n != 1 {
				s.t.Errorf("the upstream got %d requests, want 1", n)
			}
		}
	})
}

// R90: a generation that may have begun is not asked for again, also on a
// connection that was used before and whatever the harness promises.
func TestCallThatMayHaveBegunIsNeverSentAgain(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, model := range []string{"close-at-once", "reset-at-once"} {
			for _, extra := range []string{"", streaming} {
				if got := r.chat("openai", ""); got.StatusCode != 200 { // a connection to use again
					s.t.Fatalf("got %d", got.StatusCode)
				}
				s.model.Forget()
				req := r.request(http.MethodPost, chatPath, chatBody(model, extra))
				req.Header.Set("Idempotency-Key", "k-1")
				req.Header.Set("X-Idempotency-Key", "k-1")
				s.do(req).wantError(s.t, 502, "upstream_unreachable")
				if n := len(s.model.Requests()); n != 1 {
					s.t.Errorf("%s: the upstream got %d requests, want 1", model, n)
				}
			}
		}
	})
}

// An aborted generation never looks like an answer.
func TestAbortedStreamBreaksOff(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		got := r.chat("sglang-abort", usageAsked)
		received := events(scripted.Fixture("sglang/abort.sse"), 2)
		got.wantBroken(s.t, received, "upstream_unavailable")
		if strings.Contains(string(got.body), `"abort"`) {
			s.t.Error("the client saw the abort as a finish reason")
		}
		r.wantTurns(0, registry.FailureAborted)
		s.wantLogged(logged{Outcome: "aborted", End: "aborted"})
		s.wantIdle()
	})
}

// An upstream that refuses a body while it is still coming is heard.
func TestEarlyRefusalOfABigBodyIsPassedOn(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for range 5 {
		got := r.chat("413-early", `"padding":"`+strings.Repeat("a", 4<<20)+`"`)
		if got.StatusCode != 413 || string(got.body) != `{"detail":"Request body too large"}` {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
	r.wantTurns(0, registry.FailureClientError, registry.FailureClientError, registry.FailureClientError, registry.FailureClientError, registry.FailureClientError)
}

// Over HTTP/2 net/http sends no more of a request that is being refused, and leaves
// the upstream waiting for it.
func TestRefusalThatWaitsForTheRestOfItsRequestIsPassedOn(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	s := newStack(t, at(server.URL), func(set *settings) { set.tls = &tls.Config{RootCAs: roots} })
	r := s.register(registry.Spec{})
	for _, extra := range []string{"", streaming + ","} {
		got := r.chat("m", extra+`"padding":"`+strings.Repeat("a", 4<<20)+`"`)
		if got.StatusCode != http.StatusForbidden || string(got.body) != "no" || got.err != nil {
			t.Errorf("got %d %q, %v", got.StatusCode, got.body, got.err)
		}
	}
	r.wantTurns(0, registry.FailureAuth, registry.FailureAuth)
}

// A replica that has vanished costs nothing but a look at the next one.
func TestVanishedReplicaIsPassedOver(t *testing.T) {
	s := newStack(t)
	live := s.modelURL
	s = newStack(t, at(closedPort(t), live, closedPort(t)))
	r := s.register(registry.Spec{})
	for range 20 {
		r := s.register(registry.Spec{})
		if got := r.chat("openai", ""); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
		if turn := r.turns()[0]; turn.Replica != "r1" {
			t.Errorf("the turn is from %s", turn.Replica)
		}
	}
	r.wantTurns(0)
}

// When every replica is out it is a 503 that says when to come back.
func TestNoHealthyReplicaIs503WithRetryAfter(t *testing.T) {
	s := newStack(t, at(closedPort(t)))
	r := s.register(registry.Spec{})
	r.chat("openai", "").wantError(t, 502, "upstream_unreachable")
	got := r.chat("openai", "")
	got.wantError(t, 503, "upstream_unavailable")
	if got.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
	}
	r.wantTurns(0, registry.FailureConnection, registry.FailureConnection)
}

// A session whose upstream was removed is told so.
func TestMissingUpstreamIs503(t *testing.T) {
	s := newStack(t)
	got := s.register(registry.Spec{Upstream: "gone"}).chat("openai", streaming)
	got.wantError(t, 503, "upstream_unavailable")
	if got.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
}

// What nobody reads is not waited for.
func TestRefusalIsNotHeldUpByAStalledUpload(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"an unknown secret": func(req *http.Request) { req.Header.Set("Authorization", "Bearer nobody") },
		"an unknown route":  func(req *http.Request) { req.URL.Path = "/v1/nothing" },
		"a content coding":  func(req *http.Request) { req.Header.Set("Content-Encoding", "br") },
	} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			body, upload := io.Pipe()
			defer upload.Close()
			req := r.request(http.MethodPost, chatPath, "")
			req.Body, req.ContentLength = body, 1000
			change(req)
			go upload.Write([]byte(`{"model":"openai",`)) //nolint:errcheck // it ends with the test
			began := time.Now()
			if got := s.do(req); got.StatusCode < 400 {
				s.t.Errorf("%s: got %d", name, got.StatusCode)
			}
			if took := time.Since(began); took > 5*time.Second {
				s.t.Errorf("%s: the refusal took %s", name, took)
			}
			s.wantIdle()
		})
	}
}

// The deadline that bounds a body which nobody reads is the request's alone.
func TestConnectionServesOnAfterARefusal(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		slow := scripted.JSON(scripted.Fixture("openai/chat.json"))
		slow.Delay = time.Minute
		s.model.Script("slow", slow)
		conn, err := s.client.Transport.(*http.Transport).DialContext(s.t.Context(), "tcp", "")
		if err != nil {
			s.t.Fatal(err)
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		for path, status := range map[string]int{"/v1/nothing": 404, chatPath: 200, "/v1/nothing/else": 404} {
			req := r.request(http.MethodPost, path, chatBody("slow", ""))
			if err := req.Write(conn); err != nil {
				s.t.Fatal(err)
			}
			res, err := http.ReadResponse(reader, req)
			if err != nil {
				s.t.Fatalf("%s: %v", path, err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != status {
				s.t.Errorf("%s: got %d, %v", path, res.StatusCode, err)
			}
			res.Body.Close()
			time.Sleep(10 * time.Second)
		}
	})
}

// saidStatus is what the upstream itself said, 0 for nothing, when the harness
// got a status and code.
func saidStatus(model string, status int, code string) int {
	if code == "" {
		return status
	}
	switch model {
	case "close-at-once", "reset-at-once":
		return 0
	case "302":
		return http.StatusFound
	case "401":
		return http.StatusUnauthorized
	case "407":
		return http.StatusProxyAuthRequired
	default:
		return http.StatusOK
	}
}
