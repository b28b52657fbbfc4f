package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

// changeable are the settings of a session that may be changed.
type changeable struct {
	Labels   map[string]string          `json:"labels" doc:"What lists and bulk calls select by."`
	Metadata json.RawMessage            `json:"metadata,omitempty"`
	Upstream string                     `json:"upstream,omitempty"`
	Model    string                     `json:"model,omitempty"`
	Sampling map[string]json.RawMessage `json:"sampling,omitempty"`
	Capture  capture                    `json:"capture,omitzero"`
	Limits   limits                     `json:"limits,omitzero"`
	Lease    Duration                   `json:"lease,omitzero"`
}

// fixedField says why a field that a session is registered with cannot be changed.
// It is empty for any other field.
func fixedField(name string) string {
	switch name {
	case "id", "affinity", "sampling_mode", "on_endpoint_loss":
		return "a session keeps the one it has from then on"
	case "stop_conditions":
		return "all turns of a session are judged by the same rules"
	case "user":
		return "all turns of a session are with the same user"
	case "secret":
		return "POST /sessions/{id}/rotate makes another one"
	case "wait":
		return "it is how long registering waits for a place"
	}
	return ""
}

// explainFixed says of fields of a patch that are none why they cannot be.
func explainFixed(faults []FieldError) {
	for i, fault := range faults {
		name, _ := strings.CutPrefix(fault.Location, "body.")
		if why := fixedField(name); why != "" && fault.Message == unexpectedField {
			faults[i].Message = "expected only when the session is registered: " + why
		}
	}
}

// sessionPatch is a merge patch of a session: what the document shows of it is
// patchSchema, what is applied is the text.
type sessionPatch struct{ text json.RawMessage }

// UnmarshalJSON keeps the text, whose fields are checked here because only their
// exact names are merged.
func (p *sessionPatch) UnmarshalJSON(text []byte) error {
	p.text = append(p.text[:0], text...)
	return inexact(text, reflect.TypeFor[patchSchema](), "body")
}

// Schema is that of patchSchema.
func (sessionPatch) Schema(r huma.Registry) *huma.Schema { return schemaOf[patchSchema](r) }

// patchSchema is changeable, any part of which may be null.
type patchSchema struct {
	Labels   map[string]*string         `json:"labels,omitempty" doc:"A null member is removed, null removes all."`
	Metadata json.RawMessage            `json:"metadata,omitempty" doc:"Objects are merged, null removes."`
	Upstream *string                    `json:"upstream,omitempty" nullable:"true" doc:"null is the upstream default."`
	Model    *string                    `json:"model,omitempty" nullable:"true" doc:"null leaves the model to the harness."`
	Sampling map[string]json.RawMessage `json:"sampling,omitempty" doc:"A null member is removed, null removes all."`
	Capture  capturePatch               `json:"capture,omitzero" doc:"A null member is removed, null removes all."`
	Limits   limitsPatch                `json:"limits,omitzero" doc:"A null member is removed, null removes all."`
	Lease    Duration                   `json:"lease,omitzero" doc:"null is the server's default."`
}

// capturePatch is what is captured, any of which may be null.
type capturePatch struct {
	TokenIDs *bool `json:"token_ids,omitempty" nullable:"true"`
	Logprobs *bool `json:"logprobs,omitempty" nullable:"true"`
}

// limitsPatch are limits any of which may be null.
type limitsPatch struct {
	MaxTurns          *int64   `json:"max_turns,omitempty" nullable:"true" minimum:"0"`
	MaxInputTokens    *int64   `json:"max_input_tokens,omitempty" nullable:"true" minimum:"0"`
	MaxOutputTokens   *int64   `json:"max_output_tokens,omitempty" nullable:"true" minimum:"0"`
	MaxTotalTokens    *int64   `json:"max_total_tokens,omitempty" nullable:"true" minimum:"0"`
	MaxContextTokens  *int64   `json:"max_context_tokens,omitempty" nullable:"true" minimum:"0"`
	MaxInflight       *int     `json:"max_inflight,omitempty" nullable:"true" minimum:"1"`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty" nullable:"true" exclusiveMinimum:"0"`
	MaxDuration       Duration `json:"max_duration,omitzero"`
}

type patchInput struct {
	SessionPath
	Body sessionPatch `contentType:"application/merge-patch+json"`
}

func (a *API) patchSession(_ context.Context, in *patchInput) (*answer[session], error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.Update(func(spec *registry.Spec) error { return a.apply(in.Body.text, spec) }); err != nil {
		return nil, err
	}
	return ok200(a.sessionOf(s)), nil
}

// apply merges the patch into the settings of spec.
func (a *API) apply(patch json.RawMessage, spec *registry.Spec) error {
	before, err := encode(changeable{
		Labels: spec.Labels, Metadata: spec.Metadata, Upstream: spec.Upstream, Model: spec.Model,
		Sampling: spec.Sampling, Capture: capture(spec.Capture), Limits: limitsOf(spec.Limits), Lease: durationOf(spec.Lease),
	})
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	merged, err := mergePatch(before, patch)
	if err != nil {
		return err
	}
	var after changeable
	if err := json.Unmarshal(merged, &after); err != nil {
		return invalid(FieldError{Message: err.Error(), Location: "body"})
	}
	if err := a.checkSettings(&after, spec); err != nil {
		return err
	}
	spec.Labels, spec.Metadata, spec.Upstream, spec.Model = after.Labels, after.Metadata, after.Upstream, after.Model
	spec.Sampling, spec.Capture = after.Sampling, registry.Capture(after.Capture)
	spec.Limits, spec.Lease = after.Limits.spec(), after.Lease.d
	return nil
}

// checkSettings takes the upstream that the session has already: it may have
// been deleted, which is nothing that this request asks for.
func (a *API) checkSettings(s *changeable, before *registry.Spec) error {
	faults := s.Lease.checkPositive("body.lease")
	faults = append(faults, s.Limits.check("body.limits")...)
	faults = append(faults, checkLabels(s.Labels, "body.labels")...)
	faults = append(faults, checkSampling(s.Sampling, "body.sampling")...)
	if before.User != nil {
		faults = append(faults, checkChoices(s.Sampling, "body.sampling")...)
	}
	if s.Upstream != before.Upstream && !a.knownUpstream(s.Upstream) {
		faults = append(faults, FieldError{"no such upstream", "body.upstream"})
	}
	if len(faults) > 0 {
		return invalid(faults...)
	}
	return nil
}
