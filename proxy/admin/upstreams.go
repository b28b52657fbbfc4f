package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func (a *API) registerUpstreamRoutes() {
	route(a, huma.Operation{
		OperationID: "list-upstreams", Method: http.MethodGet, Path: "/upstreams", Tags: []string{tagUpstreams},
		Summary: "List upstreams", Description: "Keys and header values are never shown.",
	}, a.listUpstreams)
	route(a, huma.Operation{
		OperationID: "put-upstream", Method: http.MethodPut, Path: "/upstreams/{name}", Tags: []string{tagUpstreams},
		RequestBody: bodyLike(jsonBody, exampleUpstream),
		Summary:     "Make or replace an upstream",
		Description: "Replicas that stay keep their connections; a removed one finishes its calls. What the body leaves out, the key too, is gone.",
		Errors:      []int{http.StatusBadRequest},
	}, a.putUpstream)
	route(a, huma.Operation{
		OperationID: "delete-upstream", Method: http.MethodDelete, Path: "/upstreams/{name}", Tags: []string{tagUpstreams},
		Summary: "Remove an upstream", Description: "It finishes its calls; new ones to it fail.",
		Errors: []int{http.StatusNotFound},
	}, a.deleteUpstream)
	route(a, huma.Operation{
		OperationID: "put-weight-version", Method: http.MethodPut, Path: "/upstreams/{name}/weight_version", Tags: []string{tagUpstreams},
		RequestBody: bodyLike(jsonBody, exampleVersion),
		Summary:     "Say which weights an upstream serves", Description: "Recorded with each turn as it stood when the call began and ended.",
		Errors: []int{http.StatusBadRequest, http.StatusNotFound},
	}, a.putWeightVersion)
}

// UpstreamPath names one upstream by its path; exported like [SessionPath].
type UpstreamPath struct {
	Name string `path:"name" doc:"The upstream's name." example:"eu"`
}

// newUpstream is the body that makes an upstream.
type newUpstream struct {
	Replicas []newReplica      `json:"replicas" minItems:"1" maxItems:"1024" nullable:"false" doc:"Addresses that serve the same model."`
	APIKey   string            `json:"api_key,omitempty" writeOnly:"true" doc:"The credential sent to every replica; never shown."`
	Headers  map[string]string `json:"headers,omitempty" doc:"Set on every request; values are never shown."`
	Style    upstream.Style    `json:"style,omitempty" enum:"openai,vllm,sglang,anthropic" doc:"openai when absent."`
	Usage    upstream.Usage    `json:"usage,omitempty" enum:"auto,never" doc:"Whether muxproxy may ask streams for their usage; auto when absent."`
}

type newReplica struct {
	Name string `json:"name,omitempty" doc:"Its name in turns and metrics; host and port of the URL when absent."`
	URL  string `json:"url" minLength:"1" doc:"http or https. Without a path it gets /v1." example:"http://10.0.0.7:8000"`
}

func (n *newUpstream) config() upstream.Config {
	c := upstream.Config{APIKey: n.APIKey, Headers: n.Headers, Style: n.Style, Usage: n.Usage}
	for _, r := range n.Replicas {
		c.Replicas = append(c.Replicas, upstream.ReplicaConfig{Name: r.Name, URL: r.URL})
	}
	return c
}

type upstreamList struct {
	Upstreams []upstream.Status `json:"upstreams" nullable:"false"`
}

func (a *API) listUpstreams(context.Context, *struct{}) (*answer[upstreamList], error) {
	list := a.opts.Upstreams.List()
	if list == nil {
		list = []upstream.Status{}
	}
	return ok200(upstreamList{Upstreams: list}), nil
}

type putUpstreamInput struct {
	UpstreamPath
	Body newUpstream
}

func (a *API) putUpstream(_ context.Context, in *putUpstreamInput) (*answer[upstream.Status], error) {
	if err := a.opts.Upstreams.Put(in.Name, in.Body.config()); err != nil {
		if e, ok := errors.AsType[*upstream.InvalidError](err); ok && e.Field == "name" {
			return nil, invalid(FieldError{e.Message, "path.name"})
		}
		return nil, err
	}
	a.opts.Logger.Info().Str("upstream", in.Name).Int("replicas", len(in.Body.Replicas)).Msg("upstream configured")
	return a.status(in.Name)
}

func (a *API) status(name string) (*answer[upstream.Status], error) {
	for _, s := range a.opts.Upstreams.List() {
		if s.Name == name {
			return ok200(s), nil
		}
	}
	return nil, noUpstream()
}

func noUpstream() *Problem {
	return newProblem(http.StatusNotFound, codeNotFound, "no such upstream")
}

func (a *API) deleteUpstream(_ context.Context, in *UpstreamPath) (*struct{}, error) {
	if err := a.opts.Upstreams.Delete(in.Name); err != nil {
		return nil, upstreamError(err)
	}
	a.opts.Logger.Info().Str("upstream", in.Name).Msg("upstream removed")
	return nil, nil //nolint:nilnil // huma's way to answer 204
}

type weightVersionInput struct {
	UpstreamPath
	Body newWeightVersion
}

type newWeightVersion struct {
	WeightVersion requestedVersion `json:"weight_version" doc:"An integer or a string."`
	Replica       string           `json:"replica,omitempty" doc:"Only this replica; all when absent."`
}

// requestedVersion is a version in a request. Decoding keeps a bad value's error
// for Resolve, which knows where in the body it is.
type requestedVersion struct {
	version registry.Version
	err     error
}

// Schema allows an integer or a string.
func (*requestedVersion) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Extensions: map[string]any{"type": []string{"integer", "string"}}, Examples: []any{17}}
}

// UnmarshalJSON never fails.
func (v *requestedVersion) UnmarshalJSON(raw []byte) error {
	v.err = v.version.UnmarshalJSON(raw)
	return nil
}

// Resolve refuses what is no version.
func (v *requestedVersion) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if v.err != nil || v.version.IsZero() {
		return []error{FieldError{"expected an integer or a string", at.String()}}
	}
	return nil
}

func (a *API) putWeightVersion(_ context.Context, in *weightVersionInput) (*answer[upstream.Status], error) {
	u, ok := a.opts.Upstreams.Get(in.Name)
	if !ok {
		return nil, noUpstream()
	}
	if err := u.SetWeightVersion(in.Body.Replica, in.Body.WeightVersion.version); err != nil {
		if errors.Is(err, upstream.ErrNotFound) {
			return nil, invalid(FieldError{"no such replica", "body.replica"})
		}
		return nil, err
	}
	return a.status(in.Name)
}

func upstreamError(err error) error {
	if errors.Is(err, upstream.ErrNotFound) {
		return noUpstream()
	}
	return err
}
