package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

// documented is the part of the OpenAPI document that says how to make a call.
type documented struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Schema   struct{ Examples []any }
		}
		RequestBody struct {
			Content map[string]struct {
				Examples map[string]struct{ Value json.RawMessage }
			}
		}
	}
}

func readDocument(t *testing.T) documented {
	t.Helper()
	text, _, err := admin.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc documented
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestEveryExampleOfTheDocumentIsAccepted makes every call of the document with
// nothing but its examples, as the forms of the page do.
func TestEveryExampleOfTheDocumentIsAccepted(t *testing.T) {
	doc := readDocument(t)
	session := doc.Paths["/sessions"]["post"].RequestBody.Content["application/json"].Examples["example"].Value
	upstream := doc.Paths["/upstreams/{name}"]["put"].RequestBody.Content["application/json"].Examples["example"].Value
	for template, operations := range doc.Paths {
		for method, op := range operations {
			call := strings.ToUpper(method) + " " + template
			h := newHarness(t, func(_ *registry.Options, o *admin.Options) {
				o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			})
			h.pool.servers = []admin.Server{{ID: "srv-3", State: "ready"}}
			if !strings.HasPrefix(call, "POST /sessions") || strings.Contains(call, "{id}") {
				id, _ := h.want(http.StatusCreated, http.MethodPost, "/sessions", string(session))["id"].(string)
				h.turn(id, `{"messages":[]}`, registry.Response{Status: http.StatusOK, Body: []byte(`{}`)})
				h.want(http.StatusOK, http.MethodPut, "/upstreams/eu", string(upstream))
			}
			path, query := template, url.Values{}
			for _, p := range op.Parameters {
				switch {
				case p.In == "query" && len(p.Schema.Examples) > 0:
					query.Set(p.Name, fmt.Sprint(p.Schema.Examples[0]))
				case p.In == "path" && len(p.Schema.Examples) == 0:
					t.Errorf("%s: %s has no example", call, p.Name)
				case p.In == "path":
					path = strings.ReplaceAll(path, "{"+p.Name+"}", fmt.Sprint(p.Schema.Examples[0]))
				}
			}
			path += "?" + query.Encode()
			if len(op.RequestBody.Content) == 0 {
				if r := h.do(strings.ToUpper(method), path, nil); r.StatusCode >= http.StatusBadRequest {
					t.Errorf("%s: got %d %s", call, r.StatusCode, r.body)
				}
			}
			for contentType, media := range op.RequestBody.Content {
				if len(media.Examples) != 1 {
					t.Errorf("%s: got %d examples of a body; want 1", call, len(media.Examples))
				}
				for _, body := range media.Examples {
					if r := h.do(strings.ToUpper(method), path, string(body.Value), "Content-Type", contentType); r.StatusCode >= http.StatusBadRequest {
						t.Errorf("%s: got %d %s for %s", call, r.StatusCode, r.body, body.Value)
					}
				}
			}
		}
	}
}

func TestFiltersHaveNoExamplesThatWouldHideSessions(t *testing.T) {
	for _, p := range readDocument(t).Paths["/sessions"]["get"].Parameters {
		if p.Name != "limit" && len(p.Schema.Examples) > 0 {
			t.Errorf("%s has the example %v", p.Name, p.Schema.Examples)
		}
	}
}
