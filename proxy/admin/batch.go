package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

func (a *API) registerBatchRoutes() {
	route(a, huma.Operation{
		OperationID: "register-batch", Method: http.MethodPost, Path: "/sessions/batch", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleTemplate),
		Summary:     "Register many rollouts",
		Description: "Give sessions, or a template and a count. All or none are registered, unless atomic is false: then each is reported by itself.",
		Responses:   jsonResponses[batchAnswer](a.huma, http.StatusCreated, http.StatusOK),
		Errors:      []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, a.registerBatch)
}

type batchInput struct {
	Body batch
}

type batch struct {
	Sessions []newSession `json:"sessions,omitempty" minItems:"1" maxItems:"1024" nullable:"false" doc:"The sessions, each as in POST /sessions."`
	Template *newSession  `json:"template,omitempty" doc:"One session to make count of; without id and secret."`
	Count    int          `json:"count,omitempty" minimum:"1" maximum:"1024" doc:"How many of the template."`
	Atomic   *bool        `json:"atomic,omitempty" doc:"All or none; true when absent."`
}

// Resolve checks that the two forms are not mixed. (The members of Sessions and
// Template check themselves.)
func (b *batch) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	var faults []FieldError
	switch {
	case (b.Template == nil) == (len(b.Sessions) == 0):
		faults = append(faults, FieldError{"expected either sessions or template and count", at.String()})
	case b.Template == nil && b.Count != 0:
		faults = append(faults, FieldError{"expected only with a template", at.With("count")})
	case b.Template != nil && b.Count == 0:
		faults = append(faults, FieldError{"expected with a template: how many sessions to make of it", at.With("count")})
	}
	if b.Template != nil && b.Template.ID != "" {
		faults = append(faults, FieldError{"not in a template: ids are made", at.With("template.id")})
	}
	if b.Template != nil && b.Template.Secret != "" {
		faults = append(faults, FieldError{"not in a template: secrets are made", at.With("template.secret")})
	}
	seen := make(map[string]bool, len(b.Sessions))
	for i := range b.Sessions {
		id := b.Sessions[i].ID
		if id != "" && seen[id] {
			faults = append(faults, FieldError{"expected an id that no other session of the batch has", at.With(fmt.Sprintf("sessions[%d].id", i))})
		}
		seen[id] = true
	}
	return asErrors(faults)
}

// bodies lists the sessions, and at says where in the body each one is.
func (b *batch) bodies() (bodies []*newSession, at func(int) string) {
	if b.Template != nil {
		for range b.Count {
			bodies = append(bodies, b.Template)
		}
		return bodies, func(int) string { return "body.template" }
	}
	for i := range b.Sessions {
		bodies = append(bodies, &b.Sessions[i])
	}
	return bodies, func(i int) string { return fmt.Sprintf("body.sessions[%d]", i) }
}

// batchAnswer has an entry for each session of the request, in its order.
type batchAnswer struct {
	Sessions []batchEntry `json:"sessions" nullable:"false"`
}

// batchEntry is a registered session, as POST /sessions answers it, or with
// "atomic": false one that was not registered and its problem.
type batchEntry struct {
	session *registered
	refused *refusedEntry
}

// refusedEntry is a session that was not registered. It is told from the
// others by having an error.
type refusedEntry struct {
	ID    string   `json:"id,omitempty" doc:"As it was given."`
	Error *Problem `json:"error"`
}

// MarshalJSON implements json.Marshaler.
func (e batchEntry) MarshalJSON() ([]byte, error) {
	if e.refused != nil {
		return json.Marshal(e.refused)
	}
	return json.Marshal(e.session)
}

// Schema implements huma.SchemaProvider.
func (batchEntry) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[registered](), true, ""),
		r.Schema(reflect.TypeFor[refusedEntry](), true, ""),
	}}
}

func (a *API) registerBatch(ctx context.Context, in *batchInput) (*writer, error) {
	bodies, at := in.Body.bodies()
	register := func(ctx context.Context, all []*registration) error {
		return locate(a.registerAll(ctx, all), at)
	}
	if in.Body.Atomic != nil && !*in.Body.Atomic {
		register = func(ctx context.Context, all []*registration) error {
			err := a.registerEach(ctx, all)
			for i, r := range all {
				r.err = locate(r.err, func(int) string { return at(i) })
			}
			return err
		}
	}
	show := func(all []*registration) any {
		out := batchAnswer{Sessions: make([]batchEntry, 0, len(all))}
		for _, r := range all {
			out.Sessions = append(out.Sessions, a.entry(r))
		}
		return out
	}
	return a.registering(ctx, bodies, register, show), nil
}

func (a *API) entry(r *registration) batchEntry {
	if r.err == nil {
		return batchEntry{session: new(a.shownOf(r))}
	}
	a.refused(r.err)
	p, known := problemOf(r.err)
	if !known {
		a.opts.Logger.Error().Err(r.err).Str("session", r.spec.ID).Msg("registering failed")
	}
	return batchEntry{refused: &refusedEntry{r.body.ID, p}}
}

// locate makes the problem of one session of a batch say where that session is.
// The registry names the session when there are several.
func locate(err error, at func(int) string) error {
	index := 0
	if which, ok := errors.AsType[*registry.SpecError](err); ok {
		index, err = which.Index, which.Err
	}
	p, known := problemOf(err)
	if err == nil || !known || len(p.Errors) == 0 {
		return err
	}
	located := *p
	located.Errors = make([]FieldError, len(p.Errors))
	for i, f := range p.Errors {
		rest, _ := strings.CutPrefix(f.Location, "body")
		located.Errors[i] = FieldError{f.Message, at(index) + rest}
	}
	located.Detail = describe(located.Errors)
	return &located
}
