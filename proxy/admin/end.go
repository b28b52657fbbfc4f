package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/registry"
)

func (a *API) registerEndRoutes() {
	responses := jsonResponses[Summary](a.huma, http.StatusOK)
	responses["200"].Description = "The summary, or with trace=true the trace."
	responses["200"].Content["application/json"].Schema = &huma.Schema{
		AnyOf: []*huma.Schema{schemaOf[Summary](a.schemas()), schemaOf[trace](a.schemas())},
	}
	route(a, huma.Operation{
		OperationID: "end-session", Method: http.MethodDelete, Path: "/sessions/{id}", Tags: []string{tagSessions},
		Summary:     "End a session",
		Description: "Cancels calls in flight, seals the trace and frees the slot. Repeating it gives the same answer as long as the session's tombstone is kept.",
		Responses:   responses,
		Errors:      []int{http.StatusNotFound},
	}, a.endSession)

	responses = jsonResponses[endedSessions](a.huma, http.StatusOK)
	responses["200"].Description = "The summaries, or with trace=true the traces, one a line."
	responses["200"].Content[ndjson] = &huma.MediaType{Schema: schemaOf[traceLine](a.schemas())}
	route(a, huma.Operation{
		OperationID: "end-many", Method: http.MethodPost, Path: "/sessions/end", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleIDs),
		Summary:     "End many sessions",
		Description: "With trace=true the answer is that of POST /traces/query.",
		Responses:   responses,
		Errors:      []int{http.StatusBadRequest},
	}, a.endMany)
}

// endParallel bounds the sessions that one call ends at a time: each may wait a
// moment for its calls in flight.
const endParallel = 64

// EndQuery says what to do beside ending; exported like [SessionPath].
type EndQuery struct {
	Trace bool `query:"trace" doc:"Answer with the whole trace." example:"true"`
	Purge bool `query:"purge" doc:"Remove the trace too, once the answer is written." example:"false"`
}

type endInput struct {
	SessionPath
	EndQuery
}

func (a *API) endSession(ctx context.Context, in *endInput) (*writer, error) {
	sum, err := a.end(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &writer{Body: func(hctx huma.Context) {
		_, w := humachi.Unwrap(hctx)
		if in.Trace {
			a.writeTraces(hctx, "application/json", func(w *traceWriter) error { return a.writeEnded(w, sum) })
		} else if err := deliver(ctx, w, http.StatusOK, summaryOf(sum)); err != nil {
			return
		}
		if in.Purge {
			a.purge(ctx, sum.ID)
		}
	}}, nil
}

type endManyInput struct {
	EndQuery
	Body Selection
}

type endedSessions struct {
	Sessions []Summary `json:"sessions" nullable:"false"`
	Unknown
}

func (a *API) endMany(ctx context.Context, in *endManyInput) (*writer, error) {
	sums, unknown, err := a.endAll(ctx, a.selected(in.Body))
	if err != nil {
		return nil, err
	}
	return &writer{Body: func(hctx huma.Context) {
		_, w := humachi.Unwrap(hctx)
		if in.Trace {
			a.writeTraces(hctx, ndjson, func(w *traceWriter) error {
				for _, sum := range sums {
					if err := a.writeEnded(w, sum); err != nil {
						return err
					}
				}
				return w.unknown(unknown)
			})
		} else if err := deliver(ctx, w, http.StatusOK, endedOf(sums, unknown)); err != nil {
			return
		}
		if in.Purge {
			for _, sum := range sums {
				a.purge(ctx, sum.ID)
			}
		}
	}}, nil
}

func endedOf(sums []registry.Summary, unknown []string) endedSessions {
	out := endedSessions{Sessions: make([]Summary, 0, len(sums)), Unknown: Unknown{unknown}}
	for _, sum := range sums {
		out.Sessions = append(out.Sessions, summaryOf(sum))
	}
	return out
}

// end ends one session. Once begun it does not depend on the client's staying.
func (a *API) end(ctx context.Context, id string) (registry.Summary, error) {
	return a.opts.Registry.End(context.WithoutCancel(ctx), id, registry.EndOptions{})
}

// endAll ends the sessions of these ids, several at a time, and answers in their
// order.
func (a *API) endAll(ctx context.Context, ids []string) (sums []registry.Summary, unknown []string, err error) {
	found := make([]*registry.Summary, len(ids))
	var work errgroup.Group
	work.SetLimit(endParallel)
	for i, id := range ids {
		work.Go(func() error {
			sum, err := a.end(ctx, id)
			if err == nil {
				found[i] = &sum
			} else if !errors.Is(err, registry.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, nil, err
	}
	unknown = []string{}
	for i, id := range ids {
		if found[i] == nil {
			unknown = append(unknown, id)
		} else {
			sums = append(sums, *found[i])
		}
	}
	return sums, unknown, nil
}

// purge removes the trace of an ended session.
func (a *API) purge(ctx context.Context, id string) {
	_, err := a.opts.Registry.End(context.WithoutCancel(ctx), id, registry.EndOptions{Purge: true})
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		a.opts.Logger.Error().Err(err).Str("session", id).Msg("purging a trace failed")
	}
}

// writeEnded writes the trace of an ended session, or says that only its
// summary is left.
func (a *API) writeEnded(w *traceWriter, sum registry.Summary) error {
	s, err := a.opts.Registry.Get(sum.ID)
	if err != nil {
		return w.gone(summaryOf(sum))
	}
	t, err := s.Trace()
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return w.gone(summaryOf(sum))
	case err != nil:
		return fmt.Errorf("read trace of %s: %w", sum.ID, err)
	}
	return w.trace(s, t)
}
