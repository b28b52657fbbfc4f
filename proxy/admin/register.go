package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
)

// minPatience is how long registering waits for a place at least, so that one
// that is free is found by the most impatient client too.
const minPatience = 50 * time.Millisecond

// registration is one session of a registering request.
type registration struct {
	body   *newSession
	spec   registry.Spec
	placed bool // by this request
	got    registry.Registration
	err    error // of this one alone, when the others go on
}

// registering answers a request that registers sessions: register brings them
// about, show is the answer's body. Ids are locked to the end of the answer, and
// sessions whose answer could not be written are undone.
func (a *API) registering(
	ctx context.Context, bodies []*newSession,
	register func(context.Context, []*registration) error, show func([]*registration) any,
) *writer {
	return &writer{Body: func(hctx huma.Context) {
		start := time.Now()
		_, w := humachi.Unwrap(hctx)
		if a.opts.Registered != nil {
			defer func() { a.opts.Registered(time.Since(start)) }()
		}
		all, unlock, err := a.prepare(ctx, bodies)
		if err != nil {
			a.writeError(hctx, err)
			return
		}
		defer unlock()
		if err := register(ctx, all); err != nil {
			a.refused(err)
			a.writeError(hctx, err)
			return
		}
		a.LogWarnings(created(all))
		if err := deliver(ctx, w, registeredStatus(all), show(all)); err != nil {
			a.undo(all)
			a.opts.Logger.Debug().Err(err).Int("sessions", len(all)).Msg("registration undone")
		}
	}}
}

// prepare turns bodies into specs and locks the ids the client chose.
func (a *API) prepare(ctx context.Context, bodies []*newSession) (all []*registration, unlock func(), err error) {
	var given []string
	for _, body := range bodies {
		spec, err := body.spec()
		if err != nil {
			return nil, nil, err
		}
		if spec.ID == "" {
			spec.ID = registry.NewID()
		} else {
			given = append(given, spec.ID)
		}
		all = append(all, &registration{body: body, spec: spec})
	}
	unlock, err = a.ids.lock(ctx, given)
	return all, unlock, err
}

// registerAll registers all or none. Where it is the fault of one, the error is
// a [registry.SpecError].
func (a *API) registerAll(ctx context.Context, all []*registration) error {
	for i, r := range all {
		if err := a.check(r); err != nil {
			return &registry.SpecError{Index: i, Err: err}
		}
	}
	ctx, cancel := context.WithDeadline(ctx, a.deadline(all))
	defer cancel()
	if err := a.place(ctx, all); err != nil {
		return err
	}
	return a.enroll(all)
}

// registerEach registers what it can and leaves an error at each of the others.
// They take their places together; where that cannot be, one after another.
func (a *API) registerEach(ctx context.Context, all []*registration) error {
	var good []*registration
	for _, r := range all {
		if r.err = a.check(r); r.err == nil {
			good = append(good, r)
		}
	}
	deadline := a.deadline(good)
	together, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := a.place(together, good)
	if ctx.Err() != nil {
		return err
	}
	// Each of those that could not have their places together may find one that
	// is free.
	alone, stop := context.WithTimeout(ctx, max(time.Until(deadline), minPatience))
	defer stop()
	for _, r := range good {
		if err != nil {
			r.err = a.place(alone, []*registration{r})
		}
		if r.err == nil {
			r.err = a.enroll([]*registration{r})
		}
	}
	return nil
}

// check says what only the daemon can know to be wrong with a session.
func (a *API) check(r *registration) error {
	var faults []FieldError
	if !a.knownUpstream(r.body.Upstream) {
		faults = append(faults, FieldError{"no such upstream", "body.upstream"})
	}
	if user := r.body.User; user != nil {
		if err := a.opts.HookHosts.Check(user.URL); err != nil {
			faults = append(faults, FieldError{err.Error(), "body.user.url"})
		}
	}
	for i, c := range r.body.StopConditions {
		if c.URL == "" {
			continue
		}
		if err := a.opts.HookHosts.Check(c.URL); err != nil {
			faults = append(faults, FieldError{err.Error(), fmt.Sprintf("body.stop_conditions[%d].url", i)})
		}
	}
	if faults != nil {
		return invalid(faults...)
	}
	return nil
}

// deadline is until when the most patient one would wait for a place.
func (a *API) deadline(all []*registration) time.Time {
	patience := minPatience
	for _, r := range all {
		patience = max(patience, r.body.patience(a.opts.Wait))
	}
	return time.Now().Add(patience)
}

// place finds a place for each session that has none, for all of them or for
// none.
func (a *API) place(ctx context.Context, all []*registration) error {
	var wanting []*registration
	var ids []string
	for _, r := range all {
		// One that is there is a repeated registration, or one that the registry
		// refuses.
		if _, err := a.opts.Registry.Get(r.spec.ID); err != nil {
			wanting, ids = append(wanting, r), append(ids, r.spec.ID)
		}
	}
	if len(wanting) == 0 {
		return nil
	}
	if err := a.opts.Registry.Room(len(wanting)); err != nil {
		return err
	}
	placements, err := a.opts.Pool.Place(ctx, ids...)
	if err != nil {
		return a.placeError(ctx, err)
	}
	for i, r := range wanting {
		r.spec.Placement, r.placed = placements[i], true
	}
	return nil
}

// enroll makes sessions that have a place, all or none.
func (a *API) enroll(all []*registration) error {
	specs := make([]registry.Spec, len(all))
	for i, r := range all {
		specs[i] = r.spec
	}
	got, err := a.opts.Registry.Register(specs...)
	if err != nil {
		a.release(all)
		return err
	}
	for i, r := range all {
		r.got = got[i]
	}
	return nil
}

// knownUpstream lets the default pass: it may be configured later.
func (a *API) knownUpstream(name string) bool {
	if name == "" || name == registry.DefaultUpstream {
		return true
	}
	_, ok := a.opts.Upstreams.Get(name)
	return ok
}

// refused counts a registration that the instance's limits or its servers did
// not allow.
func (a *API) refused(err error) {
	p, known := problemOf(err)
	if !known || a.opts.Refused == nil {
		return
	}
	switch p.Code {
	case codeTooManySessions, codeMemoryFull, codeDraining, codePoolWaiting, codePoolFull, codeTunnelFailed, codeTunnelBacklog:
		a.opts.Refused(metrics.Reason(p.Code))
	}
}

func (a *API) release(all []*registration) {
	for _, r := range all {
		if r.placed {
			a.opts.Pool.Release(r.spec.ID)
			r.placed = false
		}
	}
}

// undo takes back the sessions that this request made.
func (a *API) undo(all []*registration) {
	for _, s := range created(all) {
		a.opts.Registry.Discard(s.ID())
	}
	a.release(all)
}

func created(all []*registration) (sessions []*registry.Session) {
	for _, r := range all {
		if r.got.Created {
			sessions = append(sessions, r.got.Session)
		}
	}
	return sessions
}

// registeredStatus is 201 when something was made. When nothing was, all of it
// is there already.
func registeredStatus(all []*registration) int {
	if len(created(all)) > 0 {
		return http.StatusCreated
	}
	return http.StatusOK
}

// writeError answers with the problem of err.
func (a *API) writeError(hctx huma.Context, err error) {
	p, ok := problemOf(err)
	if !ok {
		a.opts.Logger.Error().Err(err).Str("operation", hctx.Operation().OperationID).Msg("admin request failed")
	}
	_, w := humachi.Unwrap(hctx)
	writeProblem(w, p)
}
