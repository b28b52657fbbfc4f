package registry

import (
	"cmp"
	"context"
	"time"
)

// Why sessions end.
const (
	ReasonDeleted      = "deleted"
	ReasonLeaseExpired = "lease_expired"
	ReasonDiscarded    = "discarded" // see [Registry.Discard]
)

// sealTimeout is how long the end of a session waits for its calls in flight to say what they received.
const sealTimeout = 2 * time.Second

// EndOptions say how to end a session.
type EndOptions struct {
	Reason string // default [ReasonDeleted]
	Purge  bool   // drop the trace as well
}

// End ends a session: its secret is refused from now on, calls that wait are sent away, and calls in flight are cancelled and
// recorded as failed. Those that have not recorded themselves after two seconds, or when ctx is done, are recorded as cancelled and
// cannot commit any more. Then the trace is sealed and the slot is free.
//
// To end a session again changes nothing and returns the same summary, as long as its tombstone is kept. The error is [ErrNotFound],
// or the cause of ctx if another call is ending the session and ctx is done first.
func (r *Registry) End(ctx context.Context, id string, options EndOptions) (Summary, error) {
	r.mu.RLock()
	e := r.byID[id]
	if e == nil {
		r.mu.RUnlock()
		return Summary{}, ErrNotFound
	}
	session, stone := e.session, e.stone
	r.mu.RUnlock()

	var summary Summary
	switch {
	case stone != nil:
		summary = stone.summary
	case session.beginEnd(cmp.Or(options.Reason, ReasonDeleted), time.Now()):
		summary = r.bury(ctx, e, session)
		<-session.buried
	default:
		select {
		case <-session.buried:
			summary = session.Summary()
		case <-ctx.Done():
			return Summary{}, context.Cause(ctx)
		}
	}
	if options.Purge {
		r.dropTrace(e)
	}
	return summary, nil
}

// bury waits for the calls in flight of a session that has begun to end, seals its trace, and puts up the tombstone.
func (r *Registry) bury(ctx context.Context, e *entry, session *Session) Summary {
	timeout := time.NewTimer(sealTimeout)
	defer timeout.Stop()
	select {
	case <-session.settled:
	case <-timeout.C:
	case <-ctx.Done():
	}
	summary := session.seal()

	r.mu.Lock()
	r.live--
	r.reasons[summary.EndReason]++
	e.stone = &tombstone{summary: summary, until: summary.EndedAt.Add(r.options.TombstoneTTL)}
	e.retired = r.ended.PushBack(e)
	r.mu.Unlock()
	r.options.Ended(e.id)
	r.schedule.set(&e.alarm, summary.EndedAt.Add(r.options.TraceRetention))
	r.saveEnd(session)
	return summary
}

// saveEnd has the end of a session written down. Then its trace is on disk to its end, and its memory is given back. The session is
// buried once that has been tried.
func (r *Registry) saveEnd(session *Session) {
	if !r.journals() {
		close(session.buried)
		return
	}
	err := r.options.Journal.Submit(Entry{Urgent: true, Rows: session.stateRows, Done: func(err error) {
		session.noteEndWritten(err)
		if err != nil {
			r.noteEnd(session)
		}
		close(session.buried)
	}})
	if err != nil {
		close(session.buried)
	}
}

// dropTrace lets go of an ended session and reports whether it was still there. Its tombstone stays.
func (r *Registry) dropTrace(e *entry) bool {
	r.mu.Lock()
	session := e.session
	if session == nil || e.stone == nil {
		r.mu.Unlock()
		return false
	}
	r.order.remove(session)
	r.ended.Remove(e.retired)
	e.session, e.retired = nil, nil
	until := e.stone.until
	r.mu.Unlock()
	session.store.drop()
	r.noteTraceDropped(e.row)
	r.schedule.set(&e.alarm, until)
	return true
}

// forget removes a tombstone: its id can be used again, its secret is unknown.
func (r *Registry) forget(e *entry) {
	r.mu.Lock()
	r.remove(e)
	r.mu.Unlock()
	r.noteForgotten(e.row)
	r.schedule.clear(&e.alarm)
}
