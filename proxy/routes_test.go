package proxy_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// raw sends bytes on a connection of its own and reads one answer. Go's client
// would tidy the request up.
func (s *stack) raw(head, body string) answer {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n"+body); err != nil {
		s.t.Fatal(err)
	}
	method, _, _ := strings.Cut(head, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("%q: %v", head, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res, b, err}
}

// R89: every way to write the path is the path, and nothing is redirected.
func TestPathIsRecognisedHoweverItIsWritten(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, path := range []string{
		"/v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions", "//v1/chat/completions", "/v1//chat/completions",
		"/v1/chat//completions", "/v1/chat/completions/", "/v1/chat/completions//", "/chat/completions/", "///v1//v1///chat//completions//",
	} {
		s.model.Forget()
		got := r.do(r.request(http.MethodPost, path, chatBody("openai", "")))
		if got.StatusCode != 200 {
			t.Errorf("%s: status %d, body %s", path, got.StatusCode, got.body)
			continue
		}
		if sent := s.model.Last(); sent.Path != "/v1/chat/completions" {
			t.Errorf("%s went up as %s", path, sent.Path)
		}
	}
	for _, path := range []string{"/v1/models", "/models", "/v1/v1/models/", "//models"} {
		if got := r.do(r.request(http.MethodGet, path, "")); got.StatusCode != 200 || s.model.Last().Path != "/v1/models" {
			t.Errorf("%s: status %d, went up as %s", path, got.StatusCode, s.model.Last().Path)
		}
	}
}

func TestUnknownPathIsNotFoundAsJSON(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, path := range []string{
		"/v2/chat/completions", "/v1/chat", "/v1/chat/completions/x", "/v1/CHAT/completions", "/v1/chat%2Fcompletions", "/healthz/x",
		"/v1/v2/models", "/v1/modelsx", "/metrics", "/sessions", "/docs", "/openapi.json", "/readyz", "/v1/files", "/index.html",
		"/v1/chat/../chat/completions", "/debug/pprof/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, "BREW"} {
			got := r.do(r.request(method, path, ""))
			got.wantError(t, 404, "not_found")
			if got.Header.Get("X-Muxproxy-Server") != "nonce-1" || got.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: header %v", method, path, got.Header)
			}
		}
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n)
	}
	r.wantTurns(0)
}

func TestWrongMethodNamesTheAllowedOnes(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodGet, "/v1/chat/completions", "POST"},
		{http.MethodPut, "/chat/completions", "POST"},
		{http.MethodOptions, "/v1/chat/completions", "POST"},
		{http.MethodPost, "/v1/models", "GET, HEAD"},
		{http.MethodDelete, "/v1/models/gpt-4.1-mini", "GET, HEAD"},
		{http.MethodPost, "/healthz", "GET, HEAD"},
		{http.MethodGet, "/", "HEAD"},
		{http.MethodPost, "/v1", "HEAD"},
		{"BREW", "/v1/models", "GET, HEAD"},
	} {
		got := r.do(r.request(c.method, c.path, ""))
		got.wantError(t, 405, "method_not_allowed")
		if allow := got.Header.Get("Allow"); allow != c.allow || got.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.path, allow, c.allow)
		}
	}
}

// R87: there are no websockets; other upgrades are offers, and are not taken.
func TestWebsocketIsRefusedAndOtherUpgradesAreIgnored(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, path := range []string{"/v1/realtime", "/v1/chat/completions", "/v1/models", "/"} {
		got := s.raw("GET "+path+" HTTP/1.1\nHost: x\nConnection: keep-alive, Upgrade\nUpgrade: WebSocket\nSec-WebSocket-Version: 13\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: openai-insecure-api-key."+r.secret, "")
		got.wantError(t, 426, "upgrade_required")
	}
	body := chatBody("openai", "")
	got := s.raw("POST /v1/chat/completions HTTP/1.1\nHost: x\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"+
		"Authorization: Bearer "+r.secret+"\nContent-Length: "+itoa(len(body)), body)
	if got.StatusCode != 200 {
		t.Errorf("with an offer of h2c: status %d, body %s", got.StatusCode, got.body)
	}
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		if v := s.model.Last().Header.Get(name); v != "" {
			t.Errorf("%s went up as %q", name, v)
		}
	}
}

func TestProbesNeedNoSecret(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodHead, "/", 200},
		{http.MethodHead, "", 200},
		{http.MethodGet, "/healthz", 204},
		{http.MethodHead, "/healthz", 204},
		{http.MethodGet, "/v1/healthz", 204},
		{http.MethodGet, "//healthz/", 204},
		{http.MethodHead, "/v1", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got := s.do(req)
		if got.StatusCode != c.status || len(got.body) != 0 || got.Header.Get("X-Muxproxy-Server") != "nonce-1" {
			t.Errorf("%s %q: status %d, body %q, header %v", c.method, c.path, got.StatusCode, got.body, got.Header)
		}
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n) // R112
	}
}

// Every answer names the server that gave it, whoever it comes from.
func TestEveryAnswerNamesItsServer(t *testing.T) {
	s := newStack(t)
	echo := s.model
	header := http.Header{"Content-Type": {"application/json"}, "X-Muxproxy-Server": {"another"}}
	echo.Script("chained", scriptWith(header, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"a"}}]}`))
	r := s.register(registry.Spec{})
	answers := map[string]answer{
		"json": r.chat("openai", ""), "stream": r.chat("openai", streaming), "upstream error": r.chat("429", ""),
		"unusable": r.chat("html", ""), "refused": r.chat("openai", `"stream":3`), "not found": r.do(r.request(http.MethodGet, "/x", "")),
		"models": r.do(r.request(http.MethodGet, "/v1/models", "")), "chained": r.chat("chained", ""),
		"broken": r.chat("stream-abort", streaming),
	}
	for name, got := range answers {
		if v := got.Header.Values("X-Muxproxy-Server"); len(v) != 1 || v[0] != "nonce-1" {
			t.Errorf("%s: X-Muxproxy-Server is %q", name, v)
		}
		if v := got.Header.Values("X-Request-Id"); len(v) != 1 || v[0] == "" {
			t.Errorf("%s: X-Request-Id is %q", name, v)
		}
	}
}

func TestQueryGoesUpAsItIsExceptTheKey(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for query, want := range map[string]string{
		"":                              "",
		"?api-version=2024-06-01":       "api-version=2024-06-01",
		"?b=2&a=1&a=%2F%20+&c":          "b=2&a=1&a=%2F%20+&c",
		"?key=abc":                      "",
		"?key":                          "",
		"?a=1&key=" + r.secret + "&b=2": "a=1&b=2",
		"?%6Bey=abc&a=%zz":              "a=%zz",
		"?monkey=1&keys=2&Key=3":        "monkey=1&keys=2&Key=3",
		"?a=1&&b=2&":                    "a=1&&b=2&",
		"?a=key":                        "a=key",
	} {
		got := s.raw("POST "+chatPath+query+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret+"\nContent-Length: "+itoa(len(chatBody("openai", ""))), chatBody("openai", ""))
		if got.StatusCode != 200 || s.model.Last().RawQuery != want {
			t.Errorf("%s: status %d, went up as %q, want %q", query, got.StatusCode, s.model.Last().RawQuery, want)
		}
	}
	if got := r.do(r.request(http.MethodGet, "/v1/models?key=a&limit=2", "")); got.StatusCode != 200 || s.model.Last().RawQuery != "limit=2" {
		t.Errorf("models: status %d, query %q", got.StatusCode, s.model.Last().RawQuery)
	}
}

func TestModelsAreTheUpstreamsForASessionWithoutOne(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	got := r.do(r.request(http.MethodGet, "/v1/models", ""))
	if direct := s.get("/v1/models"); got.StatusCode != 200 || string(got.body) != string(direct.body) {
		t.Errorf("got %d %s, want %s", got.StatusCode, got.body, direct.body)
	}
	got = r.do(r.request(http.MethodGet, "/v1/models/gpt-4.1-mini", ""))
	if got.StatusCode != 200 || !strings.Contains(string(got.body), `"gpt-4.1-mini"`) {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	if got = r.do(r.request(http.MethodGet, "/v1/models/gpt-nope", "")); got.StatusCode != 404 || string(got.body) != string(s.get("/v1/models/gpt-nope").body) {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	for path, up := range map[string]string{
		"/v1/models/Qwen/Qwen3-8B":   "/v1/models/Qwen/Qwen3-8B",
		"/v1/models/Qwen%2FQwen3-8B": "/v1/models/Qwen%2FQwen3-8B",
		"/models/a/v1/b/":            "/v1/models/a/v1/b",
	} {
		if r.do(r.request(http.MethodGet, path, "")); s.model.Last().Path != up {
			t.Errorf("%s went up as %s, want %s", path, s.model.Last().Path, up)
		}
	}
	if got = r.do(r.request(http.MethodHead, "/v1/models", "")); got.StatusCode != 200 || len(got.body) != 0 {
		t.Errorf("HEAD: %d %q", got.StatusCode, got.body)
	}
	r.wantTurns(0)
}

// get asks the upstream itself.
func (s *stack) get(path string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.modelURL+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(req)
}

func TestSessionWithAModelSeesThatOneAlone(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Model: `Qwen/Qwen3 "8B"`})
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	got := r.do(r.request(http.MethodGet, "/v1/models", ""))
	if err := json.Unmarshal(got.body, &list); err != nil || got.StatusCode != 200 || list.Object != "list" || len(list.Data) != 1 || list.Data[0].ID != `Qwen/Qwen3 "8B"` {
		t.Errorf("got %d %s, %v", got.StatusCode, got.body, err)
	}
	for _, path := range []string{"/v1/models/Qwen/Qwen3%20%228B%22", "/models/Qwen%2FQwen3%20%228B%22", "/v1/v1/models//Qwen/Qwen3%20%228B%22/"} {
		got := r.do(r.request(http.MethodGet, path, ""))
		var model struct{ ID, Object string }
		if err := json.Unmarshal(got.body, &model); err != nil || got.StatusCode != 200 || model.ID != `Qwen/Qwen3 "8B"` || model.Object != "model" {
			t.Errorf("%s: got %d %s", path, got.StatusCode, got.body)
		}
	}
	r.do(r.request(http.MethodGet, "/v1/models/gpt-4.1-mini", "")).wantError(t, 404, "model_not_found")
	if got := r.do(r.request(http.MethodHead, "/v1/models", "")); got.StatusCode != 200 || len(got.body) != 0 {
		t.Errorf("HEAD: %d %q", got.StatusCode, got.body)
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n)
	}
}

// A model's id reaches the upstream in its path, and may not lead out of it.
func TestModelPathCannotLeaveTheModels(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, path := range []string{
		"/v1/models/../../flush_cache", "/v1/models/..", "/v1/models/a/../../x", "/v1/models/./x", "/v1/models/%2e%2e/%2E./flush_cache",
		"/v1/models/..%2f..%2fflush_cache", "/v1/models/a%2F..%2f..",
	} {
		got := s.raw("GET "+path+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret, "")
		got.wantError(t, 404, "not_found")
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, the last for %s", n, s.model.Last().Path)
	}
}

func TestClientThatLeavesTheModelsIsRecordedAsGone(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("GET /v1/models", hanging())
		r := s.register(registry.Spec{})
		req, leave := abandonable(r.request(http.MethodGet, "/v1/models", ""))
		left := r.leaveOnce(req, leave)
		left()
		s.wantLogged(logged{Outcome: "client_disconnected", Status: 499, Route: "/v1/models"})
		s.wantIdle()
	})
}
