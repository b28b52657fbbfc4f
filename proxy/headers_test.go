package proxy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// send makes a chat call with more header lines and returns what went up.
func (r *rollout) send(lines, body string) (up http.Header, got answer) {
	r.t.Helper()
	if lines != "" {
		lines = "\n" + strings.Trim(lines, "\n")
	}
	got = r.raw("POST "+chatPath+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret+"\nContent-Type: application/json\nContent-Length: "+itoa(len(body))+lines, body)
	if got.StatusCode != 200 {
		r.t.Fatalf("with %q: status %d, body %s", lines, got.StatusCode, got.body)
	}
	return r.model.Last().Header, got
}

// R68, R69: what belongs to a connection, a tunnel or the client alone stays here.
func TestHeadersOfTheConnectionDoNotGoUp(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	up, _ := r.send(`
Connection: keep-alive, X-Listed , x-also-listed
Connection: X-Third
X-Listed: 1
X-Also-Listed: 1
x-third: 1
Keep-Alive: timeout=5
Proxy-Connection: keep-alive
Proxy-Authorization: Basic dTpw
Proxy-Authenticate: Basic
Proxy-Authentication-Info: x
TE: trailers
Trailer: X-Checksum
Upgrade: h2c
Cookie: session=1
Accept-Encoding: gzip, br, zstd
Content-MD5: x
Digest: sha-256=x
Content-Digest: sha-256=:x:
Repr-Digest: sha-256=:x:
Signature: sig1=:x:
Signature-Input: sig1=()
Forwarded: for=192.0.2.1
Via: 1.1 tunnel
X-Forwarded-For: 192.0.2.1
X-Forwarded-Proto: https
X-Forwarded-Host: a.example
X-Forwarded-Anything: 1
X-Real-IP: 192.0.2.1
True-Client-IP: 192.0.2.1
CF-Ray: x
CF-Connecting-IP: 192.0.2.1
CF-Visitor: {}
CDN-Loop: cloudflare
Ngrok-Skip-Browser-Warning: 1`, chatBody("openai", ""))
	allowed := []string{"Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "X-Request-Id", "X-Session-Id"}
	for name, values := range up {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s went up as %q", name, values)
		}
	}
	if v := up.Values("Accept-Encoding"); len(v) != 1 || v[0] != "identity" {
		t.Errorf("Accept-Encoding is %q, want identity", v)
	}
	if v := up.Values("Authorization"); len(v) != 1 || v[0] != "Bearer "+upstreamKey {
		t.Errorf("Authorization is %q, want the upstream's", v)
	}
}

// L50: headers that choose features and tell clients apart pass as they are.
func TestHeadersOfTheClientGoUp(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	lines := []string{
		"OpenAI-Beta: assistants=v2", "Openai-Organization: org-1", "OpenAI-Project: p", "Anthropic-Version: 2023-06-01", "Anthropic-Beta: a,b",
		"X-Stainless-Lang: python", "X-Stainless-Retry-Count: 1", "X-Stainless-Timeout: 600", "User-Agent: OpenAI/Python 2.8.1", "Accept: text/event-stream",
		"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate: a=b", "Baggage: k=v", "X-Custom: a, b", "X-Title: agent",
		"HTTP-Referer: https://a.example", "Accept-Language: *", "X-Empty:",
	}
	up, _ := r.send(strings.Join(lines, "\n"), chatBody("openai", ""))
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		if v := up.Values(name); len(v) != 1 || v[0] != strings.TrimSpace(value) {
			t.Errorf("%s went up as %q, want %q", name, v, value)
		}
	}
	up, _ = r.send("X-Twice: 1\nX-Twice: 2", chatBody("openai", ""))
	if v := up.Values("X-Twice"); len(v) != 2 || v[0] != "1" || v[1] != "2" {
		t.Errorf("X-Twice went up as %q", v)
	}
	if _, ok := up["User-Agent"]; ok {
		t.Errorf("a User-Agent was made up: %q", up["User-Agent"])
	}
}

// R90: net/http repeats a POST that has this header under its canonical name.
func TestIdempotencyKeyGoesUpUnderALowerCaseName(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	up, _ := r.send("Idempotency-Key: stainless-python-retry-1", chatBody("openai", ""))
	if v := up.Get("Idempotency-Key"); v != "stainless-python-retry-1" || !strings.Contains(string(s.model.Last().Head), "\r\nidempotency-key: stainless") {
		t.Errorf("went up as %q:\n%s", v, s.model.Last().Head)
	}
}

func TestSessionHeaderCarriesTheAffinity(t *testing.T) {
	for _, name := range []string{"", "x-sticky"} {
		s := newStack(t, func(s *settings) { s.proxy.SessionHeader = name })
		if name == "" {
			name = "X-Session-ID"
		}
		group := s.register(registry.Spec{Affinity: "group-42"})
		single := s.register(registry.Spec{ID: "single"})
		for _, c := range []struct {
			r    *rollout
			want string
		}{{group, "group-42"}, {single, "single"}} {
			up, _ := c.r.send(name+": from the client\n"+name+": again", chatBody("openai", ""))
			if v := up.Values(name); len(v) != 1 || v[0] != c.want {
				t.Errorf("%s is %q, want %q", name, v, c.want)
			}
			c.r.do(c.r.request(http.MethodGet, "/v1/models", ""))
			if v := s.model.Last().Header.Values(name); len(v) != 1 || v[0] != c.want {
				t.Errorf("models: %s is %q, want %q", name, v, c.want)
			}
		}
	}
}

func TestRequestIDIsKeptOrMade(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, id := range []string{"req-1", "0af7651916cd43dd8448eb211c80319c", "a/b:c=d+e~", strings.Repeat("x", 128)} {
		up, got := r.send("X-Request-ID: "+id, chatBody("openai", ""))
		if got.Header.Get("X-Request-Id") != id || len(got.Header.Values("X-Request-Id")) != 1 || up.Get("X-Request-Id") != id {
			t.Errorf("%s: answered %q, went up as %q", id, got.Header.Values("X-Request-Id"), up.Values("X-Request-Id"))
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "has space", "ünï", `quo"te`, `back\slash`, strings.Repeat("x", 129)} {
		up, got := r.send("X-Request-ID: "+id, chatBody("openai", ""))
		made := got.Header.Get("X-Request-Id")
		if made == id || len(made) < 16 || up.Get("X-Request-Id") != made || seen[made] {
			t.Errorf("%q: answered %q, went up as %q", id, made, up.Values("X-Request-Id"))
		}
		seen[made] = true
	}
	turns := r.turns()
	last := turns[len(turns)-1]
	if !seen[last.RequestID] || last.UpstreamRequestID != "req_7b6f0c1d2e3a4958b7c6d5e4f3a2b1c0" {
		t.Errorf("the turn has ids %q and %q", last.RequestID, last.UpstreamRequestID)
	}
	got := r.chat("openai", streaming)
	if v := got.Header.Values("X-Upstream-Request-Id"); len(v) != 1 || v[0] != last.UpstreamRequestID {
		t.Errorf("the upstream's id is answered as %q", v)
	}
	until(t, "the ids are in the log", func() bool { // written after the answer
		logs := s.logs.String()
		return strings.Contains(logs, `"request_id":"req-1"`) && strings.Contains(logs, last.UpstreamRequestID)
	})
}

// Another muxproxy may be the upstream.
func TestUpstreamRequestIDIsTheUpstreamsOwn(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	s.model.Script("chained", scriptWith(http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"near"}, "X-Upstream-Request-Id": {"far"},
	}, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"a"}}]}`))
	for range 10 { // maps have no order
		if v := r.chat("chained", "").Header.Values("X-Upstream-Request-Id"); len(v) != 1 || v[0] != "near" {
			t.Fatalf("the upstream's id is answered as %q, want near", v)
		}
	}
}

// L50: an upstream's headers reach the client once, without what was its connection's.
func TestHeadersOfTheUpstreamPassOnce(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	header := http.Header{
		"Content-Type": {"application/json"}, "Server": {"uvicorn"}, "Date": {"Mon, 01 Jan 2024 00:00:00 GMT"},
		"Retry-After": {"7"}, "Retry-After-Ms": {"50"}, "X-Ratelimit-Remaining-Tokens": {"9"}, "Openai-Processing-Ms": {"3"},
		"X-Should-Retry": {"true"}, "X-Many": {"1", "2"}, "Etag": {`"x"`}, "Request-Id": {"req_anthropic"},
		"Set-Cookie": {"__cf_bm=1"}, "Alt-Svc": {`h3=":443"`}, "Connection": {"X-Listed"}, "X-Listed": {"1"}, "Keep-Alive": {"timeout=5"},
		"Proxy-Authenticate": {"Basic"}, "Upgrade": {"h2c"}, "Trailer": {"X-Sum"},
	}
	for _, status := range []int{200, 429, 500} {
		script := scriptWith(header, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"a"}}]}`)
		script.Status = status
		s.model.Script("headers", script)
		got := r.chat("headers", "")
		if got.StatusCode != status {
			t.Errorf("status %d, want %d", got.StatusCode, status)
		}
		for _, name := range []string{"Content-Type", "Server", "Date", "Retry-After", "Retry-After-Ms", "X-Ratelimit-Remaining-Tokens", "Openai-Processing-Ms", "X-Should-Retry", "X-Many", "Etag", "Request-Id"} {
			if !slices.Equal(got.Header.Values(name), header[name]) {
				t.Errorf("%d: %s is %q, want %q", status, name, got.Header.Values(name), header[name])
			}
		}
		for _, name := range []string{"Set-Cookie", "Alt-Svc", "X-Listed", "Keep-Alive", "Proxy-Authenticate", "Upgrade", "Trailer", "Via"} {
			if v := got.Header.Values(name); len(v) != 0 {
				t.Errorf("%d: %s passed as %q", status, name, v)
			}
		}
	}
	if got := r.chat("openai", ""); len(got.Header.Values("Date")) != 1 {
		t.Errorf("Date is %q", got.Header.Values("Date"))
	}
}

// An upstream's configured headers win over the client's; no answer shows them.
func TestConfiguredHeadersAreSentInPlaceOfTheClients(t *testing.T) {
	s := newStack(t, func(s *settings) {
		s.upstream.Headers = map[string]string{"X-Tenant": "ours", "Openai-Organization": "org-ours"}
	})
	r := s.register(registry.Spec{})
	up, _ := r.send("X-Tenant: theirs\nOpenAI-Organization: org-theirs", chatBody("openai", ""))
	if up.Get("X-Tenant") != "ours" || up.Get("Openai-Organization") != "org-ours" || len(up.Values("X-Tenant")) != 1 {
		t.Errorf("went up as %q and %q", up.Values("X-Tenant"), up.Values("Openai-Organization"))
	}
}

func TestAnthropicStyleSendsItsOwnCredential(t *testing.T) {
	s := newStack(t, func(s *settings) { s.upstream.Style = upstream.StyleAnthropic })
	r := s.register(registry.Spec{})
	up, _ := r.send("x-api-key: "+r.secret, chatBody("openai", ""))
	if up.Get("X-Api-Key") != upstreamKey || up.Get("Authorization") != "" || up.Get("Anthropic-Version") == "" {
		t.Errorf("went up with %v", up)
	}
}

// R54: what is announced is what is sent, also after an edit.
func TestContentLengthIsThatOfTheEditedBody(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Model: "openai-with-a-much-longer-name", Sampling: sampling(`{"temperature":0.5}`)})
	s.model.Func("openai-with-a-much-longer-name", answering)
	for _, extra := range []string{"", streaming, `"temperature":1,"stream":true`} {
		r.chat("x", extra)
		sent := s.model.Last()
		if sent.ContentLength != int64(len(sent.Body)) || sent.Header.Get("Content-Length") != itoa(len(sent.Body)) || sent.Header.Get("Transfer-Encoding") != "" {
			t.Errorf("announced %d (%q), sent %d", sent.ContentLength, sent.Header.Get("Content-Length"), len(sent.Body))
		}
	}
	r.wantTurns(3)
}
