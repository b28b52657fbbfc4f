package registry

import (
	"errors"
	"fmt"
	"time"
)

// restoredLease is the least that is left of a lease after a restart, or the whole lease if that is less: while the process was away
// nobody could renew it.
const restoredLease = time.Minute

// Restore takes over the sessions that the journal has kept, as they were: calls that were in flight are failed ones now. It is called
// before anything else is. An error says which session cannot be read; nothing must be done with the registry then.
func (r *Registry) Restore() error {
	if !r.journals() {
		return nil
	}
	for row, err := range r.options.Journal.Sessions() {
		if err != nil {
			return fmt.Errorf("restore sessions: %w", err)
		}
		if err := r.restore(row); err != nil {
			return fmt.Errorf("restore session %s: %w", row.ID, err)
		}
	}
	last, err := r.options.Journal.LastSession()
	if err != nil {
		return fmt.Errorf("restore sessions: %w", err)
	}
	r.order.last = max(r.order.last, uint64(last))
	return nil
}

func (r *Registry) restore(row SessionRow) error {
	s, err := r.revive(row)
	if err != nil {
		return err
	}
	if older := r.byID[s.id]; older != nil {
		// It was forgotten, or its registration undone, and only the note of that is missing.
		if older.stone == nil {
			r.live--
		}
		r.forget(older)
	}
	if len(row.Secret) != len(s.entry.secret) {
		return errors.New("the secret's hash has another length")
	}
	e := s.entry
	e.row = row.Number
	copy(e.secret[:], row.Secret)
	if s.final != nil {
		r.restoreEnded(e, row.Traced)
		return nil
	}
	rows, err := r.options.Journal.Trace(row.Number)
	if err != nil {
		return err
	}
	started, err := s.takeOver(rows)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.byID[s.id], r.bySecret[e.secret] = e, e
	r.order.put(s)
	r.live++
	r.mu.Unlock()
	s.failStarted(started)
	r.schedule.set(&e.alarm, s.nextDeadline())
	return nil
}

// restoreEnded puts up the tombstone of an ended session, before its trace if that is kept.
func (r *Registry) restoreEnded(e *entry, traced bool) {
	s := e.session
	summary := *s.final
	e.stone = &tombstone{summary: summary, until: summary.EndedAt.Add(r.options.TombstoneTTL)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[s.id], r.bySecret[e.secret] = e, e
	r.order.put(s)
	if !traced {
		r.order.remove(s)
		e.session = nil
		r.schedule.set(&e.alarm, e.stone.until)
		return
	}
	e.retired = r.ended.PushBack(e)
	r.schedule.set(&e.alarm, summary.EndedAt.Add(r.options.TraceRetention))
}

// Kept returns a session as a journal keeps it, to be read: its summary, its spec and its trace. A nil trace is one that was dropped.
func Kept(row SessionRow, trace *TraceRows) (*Session, error) {
	r, err := New(Options{})
	if err != nil {
		return nil, err
	}
	s, err := r.revive(row)
	if err != nil || trace == nil {
		return s, err
	}
	started, err := s.takeOver(*trace)
	if err != nil {
		return nil, err
	}
	s.inflight, s.unloaded = len(started), false
	return s, nil
}

// revive makes a session of what is kept of it, without its calls.
func (r *Registry) revive(row SessionRow) (*Session, error) {
	spec, err := decodeSpec(row.Spec)
	if err != nil {
		return nil, err
	}
	kept, err := decodeState(row.State)
	if err != nil {
		return nil, err
	}
	spec.ID = row.ID
	s := newSession(r, spec)
	s.number = uint64(row.Number)
	s.state, s.stopCondition, s.durationOver = kept.State, kept.StopCondition, kept.DurationOver
	s.createdAt, s.firstCallAt, s.lastCallAt = kept.CreatedAt, kept.FirstCallAt, kept.LastCallAt
	s.expiresAt = kept.ExpiresAt
	s.lastError = kept.LastError
	s.failures.byKind, s.failures.time, s.modelTime = kept.Failures, kept.FailureTime, kept.FailureTime
	for _, n := range kept.Failures {
		s.failures.total += n
	}
	if kept.Final != nil {
		s.lieDown(*kept.Final)
	}
	return s, nil
}

// lieDown makes a session an ended one again.
func (s *Session) lieDown(final Summary) {
	final.Labels, final.Metadata = s.spec.Labels, s.spec.Metadata
	s.final, s.unloaded = &final, true
	s.state, s.endedAt = StateEnded, final.EndedAt
	ended := &EndedError{ID: s.id, Reason: final.EndReason}
	s.ended.Store(ended)
	s.finish(ended)
	close(s.settled)
	close(s.buried)
}

// takeOver puts the calls that are kept into a session, and returns those that are kept as in flight.
func (s *Session) takeOver(rows TraceRows) (started []*FailedCall, err error) {
	trace, err := s.store.load(rows)
	if err != nil {
		return nil, err
	}
	s.lastCallRow = trace.lastRow
	for _, t := range trace.turns {
		if s.final != nil {
			s.turns = append(s.turns, t.Turn)
			continue
		}
		if s.store.session != nil {
			t.session = s // a replay may yet deliver it
		}
		s.take(t.Turn)
		end := t.StartedAt.Add(t.Duration)
		s.lastCallAt, s.expiresAt = latest(s.lastCallAt, t.AdmittedAt), latest(s.expiresAt, s.spec.expiry(end))
		if t.Condition != "" && s.state == StateActive {
			s.stop(t.Condition, false)
		}
	}
	for _, f := range trace.failed {
		s.store.exchange(f, s.failures.keep(f))
	}
	s.expiresAt = latest(s.expiresAt, time.Now().Add(min(restoredLease, s.spec.Lease)))
	return trace.started, nil
}

// failStarted makes failed calls of those that were in flight when the process died.
func (s *Session) failStarted(started []*FailedCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range started {
		s.store.exchange(f, s.failures.add(f))
		s.lastError = new(f.Error)
		s.noteFailed(&Call{session: s, row: f.row, written: true}, f)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
