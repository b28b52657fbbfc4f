// Package admin is the control plane of muxproxy: the HTTP API through which a
// trainer or an evaluator registers rollouts, reads their traces and manages
// upstreams. It also serves health, metrics, the OpenAPI document and a page to
// browse it.
//
// The API is described by Go types: huma checks requests against them and
// derives the OpenAPI document from them. One file holds one resource, with its
// routes at the top. Every failure is a [Problem].
//
// The handler belongs on a listener of its own that no tunnel points at.
package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// apiVersion is the version of the API, in its OpenAPI document.
const apiVersion = "1.0.0"

// Options configure an API. Registry, Upstreams and Pool are needed; the zero
// value of every other field is its default.
type Options struct {
	// Registry holds the sessions.
	Registry *registry.Registry
	// Upstreams holds the model APIs.
	Upstreams *upstream.Set
	// Pool gives sessions their endpoint.
	Pool Pool

	// HookHosts are the hosts that the URLs of a session may name.
	HookHosts hook.Hosts

	// Token is the admin token; when empty nothing asks for one.
	Token string
	// Metrics serves GET /metrics; nil serves 404.
	Metrics http.Handler
	// MetricsAuth makes GET /metrics ask for the token too.
	MetricsAuth bool
	// Profiles serves everything under /debug/pprof/, for who has the token; nil
	// serves 404.
	Profiles http.Handler
	// Ready says why no new session can be placed; nil means that one can, and
	// so does a nil function.
	Ready func() error
	// Version is the version of the program, shown by GET /healthz.
	Version string

	// Wait is how long registering waits for a place when the client does not
	// say; 60 s.
	Wait time.Duration
	// MaxBodyBytes bounds a request's body; 16 MiB.
	MaxBodyBytes int64
	// Registered is told how long each registering call took, waiting for places
	// included.
	Registered func(time.Duration)
	// Refused is told of each registration that a limit of the instance or its
	// servers did not allow.
	Refused func(metrics.Reason)
	// Logger gets one debug line for each request, and faults.
	Logger zerolog.Logger
}

// API is the admin API.
type API struct {
	opts    Options
	huma    huma.API
	handler http.Handler
	ids     idLocks
}

// New builds the API. It starts nothing.
func New(opts Options) (*API, error) {
	switch {
	case opts.Registry == nil:
		return nil, errors.New("admin: Options.Registry is nil")
	case opts.Upstreams == nil:
		return nil, errors.New("admin: Options.Upstreams is nil")
	case opts.Pool == nil:
		return nil, errors.New("admin: Options.Pool is nil")
	}
	return build(opts), nil
}

func build(opts Options) *API {
	opts.Wait = cmp.Or(opts.Wait, time.Minute)
	opts.MaxBodyBytes = cmp.Or(opts.MaxBodyBytes, 16<<20)
	a := &API{opts: opts}

	r := chi.NewMux()
	r.Use(middleware.GetHead)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed(r))

	a.huma = humachi.New(r, document())
	a.huma.UseMiddleware(onlyOnce, noBody)
	a.registerSessionRoutes()
	a.registerBatchRoutes()
	a.registerLeaseRoutes()
	a.registerStopRoutes()
	a.registerEndRoutes()
	a.registerTraceRoutes()
	a.registerServerRoutes()
	a.registerUpstreamRoutes()
	a.registerPauseRoutes()
	a.registerHealthRoutes()
	a.registerDocsRoutes(r)
	if opts.Profiles != nil {
		r.Handle("/debug/pprof/*", opts.Profiles)
	}

	a.handler = a.record(r, a.authenticate(limitUpload(r)))
	return a
}

// Handler serves the API.
func (a *API) Handler() http.Handler { return a.handler }

// route registers one operation: it adds what all have in common and turns
// errors into problems.
func route[I, O any](a *API, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.MaxBodyBytes = a.opts.MaxBodyBytes + 1 // huma refuses a body of exactly this size
	op.BodyReadTimeout = -1                   // limitUpload's work
	if op.Security == nil {
		op.Errors = append(op.Errors, http.StatusUnauthorized)
	}
	op.Errors = slices.Compact(slices.Sorted(slices.Values(op.Errors)))
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := h(ctx, in)
		if err == nil {
			return out, nil
		}
		p, ok := problemOf(err)
		if !ok {
			a.opts.Logger.Error().Err(err).Str("operation", op.OperationID).Msg("admin request failed")
		}
		return nil, p
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	detail := "no such path"
	if r.URL.Path == "/" {
		detail = "nothing is here: the API can be browsed at /docs and is described in /openapi.json"
	}
	writeProblem(w, newProblem(http.StatusNotFound, codeNotFound, detail))
}

func methodNotAllowed(routes chi.Routes) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if !routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
				continue
			}
			w.Header().Add("Allow", method)
			if method == http.MethodGet {
				w.Header().Add("Allow", http.MethodHead)
			}
		}
		writeProblem(w, newProblem(http.StatusMethodNotAllowed, codeNotAllowed, "this path does not take "+r.Method))
	}
}
