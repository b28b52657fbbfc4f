package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func (a *API) registerPauseRoutes() {
	route(a, huma.Operation{
		OperationID: "pause-upstream", Method: http.MethodPost, Path: "/upstreams/{name}/pause", Tags: []string{tagUpstreams},
		RequestBody: bodyLike(jsonBody, examplePause),
		Summary:     "Pause an upstream",
		Description: "New calls are held, or rejected with 429. With inflight wait or abort the answer comes when nothing is in flight, which is when weights can be changed; if the pause is over before, the answer is 409. Another pause takes the place of the one before it.",
		Errors:      []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict},
	}, a.pauseUpstream)
	route(a, huma.Operation{
		OperationID: "resume-upstream", Method: http.MethodPost, Path: "/upstreams/{name}/resume", Tags: []string{tagUpstreams},
		RequestBody: bodyLike(jsonBody, exampleVersion),
		Summary:     "End a pause",
		Description: "Held calls go on, recorded with the weight version if one is given. An upstream that is not paused just gets the version.",
		Errors:      []int{http.StatusBadRequest, http.StatusNotFound},
	}, a.resumeUpstream)
}

type pauseInput struct {
	UpstreamPath
	Body *newPause
}

type newPause struct {
	Mode      upstream.PauseMode     `json:"mode,omitempty" enum:"hold,reject" default:"hold" doc:"What becomes of new calls: they wait, or get 429."`
	Inflight  upstream.PauseInflight `json:"inflight,omitempty" enum:"keep,wait,abort" default:"keep" doc:"What becomes of calls in flight: they go on, they go on and the answer waits for them, or they are cancelled."`
	Timeout   Duration               `json:"timeout,omitzero" doc:"When the pause ends by itself; 5m when absent."`
	OnTimeout upstream.PauseEnd      `json:"on_timeout,omitempty" enum:"resume,reject" default:"resume" doc:"How it ends by itself: calls go on, or are rejected until the upstream is resumed."`
}

// Resolve refuses a pause that would be over at once.
func (n *newPause) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	return asErrors(n.Timeout.checkPositive(at.With("timeout")))
}

func (a *API) pauseUpstream(ctx context.Context, in *pauseInput) (*answer[upstream.Status], error) {
	u, ok := a.opts.Upstreams.Get(in.Name)
	if !ok {
		return nil, noUpstream()
	}
	how := upstream.Pause{Mode: upstream.PauseHold, Inflight: upstream.InflightKeep}
	if b := in.Body; b != nil {
		how = upstream.Pause{Mode: b.Mode, Inflight: b.Inflight, Timeout: b.Timeout.d, OnTimeout: b.OnTimeout}
	}
	a.opts.Logger.Info().Str("upstream", in.Name).Str("mode", string(how.Mode)).Str("inflight", string(how.Inflight)).Msg("upstream paused")
	err := u.Pause(ctx, how)
	if errors.Is(err, upstream.ErrPauseOver) {
		return nil, newProblem(http.StatusConflict, codePauseOver, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return a.status(in.Name)
}

type resumeInput struct {
	UpstreamPath
	Body *newResume
}

type newResume struct {
	WeightVersion *requestedVersion `json:"weight_version,omitempty" doc:"An integer or a string; for all replicas."`
}

func (a *API) resumeUpstream(_ context.Context, in *resumeInput) (*answer[upstream.Status], error) {
	u, ok := a.opts.Upstreams.Get(in.Name)
	if !ok {
		return nil, noUpstream()
	}
	var version registry.Version
	if in.Body != nil && in.Body.WeightVersion != nil {
		version = in.Body.WeightVersion.version
	}
	u.Resume(version)
	a.opts.Logger.Info().Str("upstream", in.Name).Msg("upstream resumed")
	return a.status(in.Name)
}
