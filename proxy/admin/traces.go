package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/muxproxy/muxproxy/registry"
)

func (a *API) registerTraceRoutes() {
	responses := jsonResponses[trace](a.huma, http.StatusOK)
	responses["200"].Content[ndjson] = &huma.MediaType{Schema: schemaOf[turn](a.schemas())}
	route(a, huma.Operation{
		OperationID: "get-trace", Method: http.MethodGet, Path: "/sessions/{id}/trace", Tags: []string{tagTraces},
		Summary:     "Get a session's trace",
		Description: "As one document, or with Accept: application/x-ndjson one turn a line. It has every turn whose last byte a client has read.",
		Responses:   responses, Errors: []int{http.StatusNotFound},
	}, a.getTrace)
	route(a, huma.Operation{
		OperationID: "get-turn", Method: http.MethodGet, Path: "/sessions/{id}/turns/{index}", Tags: []string{tagTraces},
		Summary: "Get one turn", Responses: jsonResponses[turn](a.huma, http.StatusOK), Errors: []int{http.StatusNotFound},
	}, a.getTurn)
	route(a, huma.Operation{
		OperationID: "get-turn-request", Method: http.MethodGet, Path: "/sessions/{id}/turns/{index}/request", Tags: []string{tagTraces},
		Summary: "Get the exact bytes that were sent upstream", Responses: rawResponse("application/json"), Errors: []int{http.StatusNotFound},
	}, a.getRequest)
	route(a, huma.Operation{
		OperationID: "get-turn-response", Method: http.MethodGet, Path: "/sessions/{id}/turns/{index}/response", Tags: []string{tagTraces},
		Summary: "Get the exact bytes that were received", Responses: rawResponse("application/json", "text/event-stream"), Errors: []int{http.StatusNotFound},
	}, a.getResponse)
	route(a, huma.Operation{
		OperationID: "query-traces", Method: http.MethodPost, Path: "/traces/query", Tags: []string{tagTraces},
		RequestBody: bodyLike(jsonBody, exampleIDs),
		Summary:     "Get the traces of many sessions",
		Description: "One trace a line, sent as it is read. An id that no session has gets a line with an error.",
		Responses: map[string]*huma.Response{"200": {
			Description: http.StatusText(http.StatusOK),
			Content:     map[string]*huma.MediaType{ndjson: {Schema: schemaOf[traceLine](a.schemas())}},
		}},
		Errors: []int{http.StatusBadRequest},
	}, a.queryTraces)
}

// trace documents what traceWriter writes.
type trace struct {
	ID               string             `json:"id"`
	Session          Summary            `json:"session"`
	Settings         nullable[Settings] `json:"settings" doc:"The rules the session ran under, as changed last; null once the trace has been removed."`
	Turns            []turn             `json:"turns" doc:"In the order they were committed; null once the trace has been removed."`
	FailedCalls      []failedCall       `json:"failed_calls" doc:"Calls that made no turn, oldest first: the first and the last hundred."`
	FailedCallsTotal int64              `json:"failed_calls_total" doc:"How many there were."`
}

// traceLine documents a line of POST /traces/query: a trace, or an error.
type traceLine struct {
	ID               string       `json:"id"`
	Session          *Summary     `json:"session,omitempty"`
	Settings         *Settings    `json:"settings,omitempty"`
	Turns            []turn       `json:"turns,omitempty"`
	FailedCalls      []failedCall `json:"failed_calls,omitempty"`
	FailedCallsTotal int64        `json:"failed_calls_total,omitempty"`
	Error            *Problem     `json:"error,omitempty" doc:"Instead of the rest, for an id that no session has."`
}

func (a *API) schemas() huma.Registry { return a.huma.OpenAPI().Components.Schemas }

func rawResponse(contentTypes ...string) map[string]*huma.Response {
	content := make(map[string]*huma.MediaType, len(contentTypes))
	for _, t := range contentTypes {
		content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return map[string]*huma.Response{"200": {Description: "The bytes.", Content: content}}
}

type traceInput struct {
	SessionPath
	Accept string `header:"Accept" hidden:"true"`
}

func (a *API) getTrace(_ context.Context, in *traceInput) (*writer, error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	t, err := s.Trace()
	if err != nil {
		return nil, err
	}
	return &writer{Body: func(hctx huma.Context) {
		hctx.AppendHeader("Vary", "Accept")
		if negotiation.SelectQValue(in.Accept, []string{"application/json", ndjson}) == ndjson {
			a.writeTraces(hctx, ndjson, func(w *traceWriter) error { return w.turns(t) })
			return
		}
		a.writeTraces(hctx, "application/json", func(w *traceWriter) error { return w.trace(s, t) })
	}}, nil
}

// turnInput names one turn.
type turnInput struct {
	SessionPath
	Index int `path:"index" minimum:"0" doc:"The turn's index, from 0." example:"0"`
}

func (a *API) findTurn(in *turnInput) (*registry.Session, *registry.Turn, error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.Turn(in.Index)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, nil, newProblem(http.StatusNotFound, codeNotFound, "no such turn")
	}
	return s, t, err
}

func (a *API) getTurn(_ context.Context, in *turnInput) (*writer, error) {
	s, t, err := a.findTurn(in)
	if err != nil {
		return nil, err
	}
	raw, err := appendTurn(nil, t, s.Turn)
	if err != nil {
		return nil, err
	}
	return bytesOf("application/json", raw), nil
}

func (a *API) getRequest(_ context.Context, in *turnInput) (*writer, error) {
	_, t, err := a.findTurn(in)
	if err != nil {
		return nil, err
	}
	return bytesOf("application/json", t.Request()), nil
}

func (a *API) getResponse(_ context.Context, in *turnInput) (*writer, error) {
	_, t, err := a.findTurn(in)
	if err != nil {
		return nil, err
	}
	if t.Stream {
		return bytesOf("text/event-stream", t.Response()), nil
	}
	return bytesOf("application/json", t.Response()), nil
}

func bytesOf(contentType string, raw []byte) *writer {
	return &writer{Body: func(hctx huma.Context) {
		_, w := humachi.Unwrap(hctx)
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = (&patientWriter{w: w, ResponseController: http.NewResponseController(w)}).Write(raw)
	}}
}

type queryInput struct {
	Body Selection
}

func (a *API) queryTraces(_ context.Context, in *queryInput) (*writer, error) {
	ids := a.selected(in.Body)
	return &writer{Body: func(hctx huma.Context) {
		a.writeTraces(hctx, ndjson, func(w *traceWriter) error {
			for _, id := range ids {
				if err := a.writeTrace(w, id); err != nil {
					return err
				}
			}
			return nil
		})
	}}, nil
}

// writeTrace writes a session's trace, or that there is none.
func (a *API) writeTrace(w *traceWriter, id string) error {
	s, err := a.opts.Registry.Get(id)
	if err != nil {
		return w.unknown([]string{id})
	}
	t, err := s.Trace()
	switch {
	case errors.Is(err, registry.ErrNotFound): // it was removed meanwhile
		return w.unknown([]string{id})
	case err != nil:
		return fmt.Errorf("read trace of %s: %w", id, err)
	}
	return w.trace(s, t)
}
