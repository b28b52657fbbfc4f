package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
)

var update = flag.Bool("update", false, "write docs/openapi.json and docs/openapi.yaml")

func TestTheDocumentInDocsIsTheOneThatIsServed(t *testing.T) {
	jsonText, yamlText, err := admin.Document()
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	for name, want := range map[string][]byte{"openapi.json": jsonText, "openapi.yaml": yamlText} {
		if served := h.do(http.MethodGet, "/"+name, nil); !bytes.Equal(served.body, want) || served.StatusCode != http.StatusOK {
			t.Errorf("%s: the served document is another one", name)
		}
		path := "../../docs/" + name
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go test ./proxy/admin -update", path)
		}
	}
}

func TestTheDocumentIsOpenAPI31WithEveryCall(t *testing.T) {
	jsonText, _, err := admin.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Responses map[string]struct{ Content map[string]any }
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]value }
		}
	}
	if err := json.Unmarshal(jsonText, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("got version %s", doc.OpenAPI)
	}
	var calls []string
	for path, operations := range doc.Paths {
		for method, op := range operations {
			calls = append(calls, strings.ToUpper(method)+" "+path)
			for status, r := range op.Responses {
				if _, ok := r.Content["application/problem+json"]; status >= "4" && !ok {
					t.Errorf("%s %s: %s is no problem", method, path, status)
				}
			}
		}
	}
	slices.Sort(calls)
	want := []string{
		"DELETE /sessions/{id}", "DELETE /upstreams/{name}",
		"GET /healthz", "GET /metrics", "GET /readyz", "GET /servers", "GET /sessions", "GET /sessions/{id}", "GET /sessions/{id}/trace",
		"GET /sessions/{id}/turns/{index}", "GET /sessions/{id}/turns/{index}/request", "GET /sessions/{id}/turns/{index}/response", "GET /upstreams",
		"PATCH /sessions/{id}", "POST /servers/{id}/drain",
		"POST /sessions", "POST /sessions/batch", "POST /sessions/end", "POST /sessions/heartbeat", "POST /sessions/stop",
		"POST /sessions/{id}/heartbeat", "POST /sessions/{id}/rotate", "POST /sessions/{id}/stop", "POST /traces/query",
		"POST /upstreams/{name}/pause", "POST /upstreams/{name}/resume",
		"PUT /upstreams/{name}", "PUT /upstreams/{name}/weight_version",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("got %v\nwant %v", calls, want)
	}
	if _, ok := doc.Components.Schemas["NewSession"].Properties["lease"]["oneOf"]; !ok {
		t.Errorf("a duration is not oneOf: %v", doc.Components.Schemas["NewSession"].Properties["lease"])
	}
	if _, ok := doc.Components.Schemas["Problem"].Properties["code"]; !ok {
		t.Error("a problem has no code")
	}
}

func TestDocsPageAsksForNothingFromElsewhere(t *testing.T) {
	h := newHarness(t)
	page := h.do(http.MethodGet, "/docs", nil)
	if ct := page.Header.Get("Content-Type"); page.StatusCode != http.StatusOK || ct != "text/html; charset=utf-8" {
		t.Errorf("got %d %s", page.StatusCode, ct)
	}
	if strings.Contains(string(page.body), "://") {
		t.Errorf("the page names another host: %s", page.body)
	}
	if csp := page.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "http") {
		t.Errorf("got policy %q", csp)
	}
	script := h.do(http.MethodGet, "/docs/rapidoc-min.js", nil)
	if script.StatusCode != http.StatusOK || len(script.body) < 100_000 || !strings.HasPrefix(script.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("got %d %s, %d bytes", script.StatusCode, script.Header.Get("Content-Type"), len(script.body))
	}
}

func TestDocsTakeTheTokenAsAPasswordOfTheBrowser(t *testing.T) {
	h := newHarness(t)
	r := h.problem(http.StatusUnauthorized, "unauthorized", http.MethodGet, "/docs", nil, "Authorization", "")
	if got := r.Header.Values("WWW-Authenticate"); len(got) != 2 || !strings.HasPrefix(got[1], "Basic ") {
		t.Errorf("got %v", got)
	}
	basic := "Basic YW55OmEtdG9rZW4tb2YtdGhlLXRlc3Rz" // any:a-token-of-the-tests
	for _, path := range []string{"/docs", "/openapi.json", "/openapi.yaml", "/docs/rapidoc-min.js"} {
		if r := h.do(http.MethodGet, path, nil, "Authorization", basic); r.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", path, r.StatusCode)
		}
	}
	h.problem(http.StatusUnauthorized, "unauthorized", http.MethodGet, "/sessions", nil, "Authorization", basic)
}
