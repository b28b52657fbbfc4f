package admin

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
)

// writer is the answer of a handler that writes its body by itself.
type writer struct {
	Body func(huma.Context)
}

// answer is a JSON body with a status of its own.
type answer[T any] struct {
	Status int
	Body   T
}

func ok200[T any](body T) *answer[T] { return &answer[T]{Status: http.StatusOK, Body: body} }

// jsonResponses documents what a [writer] answers with.
func jsonResponses[T any](api huma.API, statuses ...int) map[string]*huma.Response {
	schema := schemaOf[T](api.OpenAPI().Components.Schemas)
	responses := make(map[string]*huma.Response, len(statuses))
	for _, status := range statuses {
		responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}
	}
	return responses
}

// deliver writes a JSON answer to the connection and reports whether that
// worked. It does not know whether the client has read it.
func deliver(ctx context.Context, w http.ResponseWriter, status int, body any) error {
	if ctx.Err() != nil {
		return fmt.Errorf("client has gone: %w", context.Cause(ctx))
	}
	raw, err := encode(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	raw = append(raw, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	out := &patientWriter{w: w, ResponseController: http.NewResponseController(w)}
	if _, err := out.Write(raw); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("flush answer: %w", err)
	}
	return nil
}

// writeProblem answers where huma has no part in it.
func writeProblem(w http.ResponseWriter, p *Problem) {
	maps.Copy(w.Header(), p.headers)
	w.Header().Set("Content-Type", p.ContentType(""))
	raw, err := encode(p)
	if err != nil {
		raw = []byte("{}")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(raw, '\n'))
}

// withRoute lets the router leave the pattern it found in rctx.
func withRoute(ctx context.Context, rctx *chi.Context) context.Context {
	return context.WithValue(ctx, chi.RouteCtxKey, rctx)
}
