package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/muxproxy/muxproxy/registry"
)

const description = `Register rollouts, read their traces, manage upstreams.

Errors are application/problem+json (RFC 9457) with a code from a closed set. Unknown fields and query parameters are
errors that name them. Durations are taken as Go durations ("90s") or numbers of seconds, and given as numbers of
seconds in fields that end in _seconds. Times are RFC 3339.`

// document is the part of the OpenAPI document, and of huma's settings, that no
// operation adds.
func document() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[registry.Version](), reflect.TypeFor[weightVersion]())
	schemas.RegisterTypeAlias(reflect.TypeFor[huma.ErrorModel](), reflect.TypeFor[Problem]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "muxproxy admin API", Version: apiVersion, Description: description,
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "The admin token, MUXPROXY_ADMIN_TOKEN."},
				},
			},
			Security: []map[string][]string{{"token": {}}},
			Tags: []*huma.Tag{
				{Name: tagSessions, Description: "Rollouts: register, list, limit, stop, end."},
				{Name: tagTraces, Description: "What was recorded of a rollout's model calls."},
				{Name: tagServers, Description: "The servers through which harnesses reach the data plane."},
				{Name: tagUpstreams, Description: "The model APIs that calls are sent to."},
				{Name: tagDaemon, Description: "Health and metrics."},
			},
		},
		Formats: map[string]huma.Format{
			"application/json": jsonFormat(),
			"json":             jsonFormat(),
		},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{fromHuma},
	}
}

// The groups of operations.
const (
	tagSessions  = "sessions"
	tagTraces    = "traces"
	tagServers   = "servers"
	tagUpstreams = "upstreams"
	tagDaemon    = "daemon"
)

func jsonFormat() huma.Format {
	return huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decode}
}

// OpenAPI returns the OpenAPI document as JSON, indented, and as YAML.
func (a *API) OpenAPI() (jsonText, yamlText []byte, err error) {
	doc := a.huma.OpenAPI()
	compact, err := doc.MarshalJSON()
	if err != nil {
		return nil, nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "  "); err != nil {
		return nil, nil, fmt.Errorf("indent OpenAPI document: %w", err)
	}
	indented.WriteByte('\n')
	yamlText, err = doc.YAML()
	if err != nil {
		return nil, nil, fmt.Errorf("encode OpenAPI document as YAML: %w", err)
	}
	return indented.Bytes(), yamlText, nil
}

// Document is what [API.OpenAPI] returns, without an API that could serve.
func Document() (jsonText, yamlText []byte, err error) { return build(Options{}).OpenAPI() }

// registerDocsRoutes serves the document, encoded when it is first asked for,
// and the page to browse it.
func (a *API) registerDocsRoutes(r chi.Router) {
	type texts struct{ json, yaml []byte }
	document := sync.OnceValues(func() (t texts, err error) {
		t.json, t.yaml, err = a.OpenAPI()
		return t, err
	})
	serve := func(contentType string, choose func(texts) []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			t, err := document()
			if err != nil {
				a.opts.Logger.Error().Err(err).Msg("OpenAPI document is broken")
				writeProblem(w, newProblem(http.StatusInternalServerError, codeInternal, "internal error"))
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(choose(t))
		}
	}
	r.Get("/openapi.json", serve("application/openapi+json", func(t texts) []byte { return t.json }))
	r.Get("/openapi.yaml", serve("application/openapi+yaml", func(t texts) []byte { return t.yaml }))
	registerPage(r)
}

func schemaOf[T any](r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, "")
}

// weightVersion stands for registry.Version in the document.
type weightVersion struct{ registry.Version }

// Schema allows an integer, a string, or null where there is no version.
func (weightVersion) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Extensions: map[string]any{"type": []string{"integer", "string", "null"}},
		Examples:   []any{17},
	}
}
