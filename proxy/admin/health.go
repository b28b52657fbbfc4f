package admin

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
)

func (a *API) registerHealthRoutes() {
	// Probes and scrapers may add parameters of their own, to get past a cache:
	// none of these calls has any that could be misspelt.
	const anyQuery = true
	noToken := []map[string][]string{}
	route(a, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: []string{tagDaemon}, SkipValidateParams: anyQuery, Security: noToken,
		Summary: "Whether the process is alive", Description: "Asks no upstream.",
	}, a.healthz)
	route(a, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{tagDaemon}, SkipValidateParams: anyQuery, Security: noToken,
		Summary: "Whether a session can be placed", Description: "503 while shutting down too.",
		Errors: []int{http.StatusServiceUnavailable},
	}, a.readyz)
	route(a, huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{tagDaemon}, SkipValidateParams: anyQuery,
		Summary: "Prometheus metrics", Description: "Asks for the token only where MUXPROXY_METRICS_AUTH is set.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The Prometheus text format.",
			Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	}, a.metrics)
}

type health struct {
	Status  string `json:"status" enum:"ok"`
	Version string `json:"version,omitempty" doc:"The program's version."`
}

func (a *API) healthz(context.Context, *struct{}) (*answer[health], error) {
	return ok200(health{Status: "ok", Version: a.opts.Version}), nil
}

func (a *API) readyz(context.Context, *struct{}) (*answer[health], error) {
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			return nil, retriable(retryAfter, http.StatusServiceUnavailable, codeNotReady, err.Error())
		}
	}
	return ok200(health{Status: "ok", Version: a.opts.Version}), nil
}

func (a *API) metrics(context.Context, *struct{}) (*writer, error) {
	if a.opts.Metrics == nil {
		return nil, newProblem(http.StatusNotFound, codeNotFound, "metrics are not served here")
	}
	return &writer{Body: func(hctx huma.Context) {
		r, w := humachi.Unwrap(hctx)
		a.opts.Metrics.ServeHTTP(w, r)
	}}, nil
}
