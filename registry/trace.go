package registry

import (
	"slices"
	"time"
)

// Trace is everything a session has recorded. It is the caller's, but for what it points to.
type Trace struct {
	Summary     Summary
	Turns       []*Turn
	FailedCalls []*FailedCall // the first and the last hundred
	FailedTotal int64         // how many there were
}

// Trace returns what the session has recorded so far, as of one moment, and marks it as read. With a journal an ended session's trace
// is read from there; the error is the journal's, or [ErrNotFound] if the trace is gone. Otherwise there is none.
func (s *Session) Trace() (Trace, error) {
	s.mu.Lock()
	s.read.Store(true)
	trace := Trace{
		Summary: s.summary(), Turns: slices.Clone(s.turns),
		FailedCalls: s.failures.kept(), FailedTotal: s.failures.total,
	}
	unloaded := s.unloaded
	s.mu.Unlock()
	if !unloaded {
		return trace, nil
	}
	loaded, err := s.fetch(func(j Journal) (TraceRows, error) { return j.Trace(s.row()) })
	if err != nil {
		return Trace{}, err
	}
	for _, t := range loaded.turns {
		trace.Turns = append(trace.Turns, t.Turn)
	}
	trace.FailedCalls = loaded.failed
	return trace, nil
}

// Turn returns the turn with this index. The error is [ErrNotFound], or the journal's as that of Trace.
func (s *Session) Turn(index int) (*Turn, error) {
	if index < 0 {
		return nil, ErrNotFound
	}
	s.mu.Lock()
	if !s.unloaded {
		defer s.mu.Unlock()
		if index >= len(s.turns) {
			return nil, ErrNotFound
		}
		return s.turns[index], nil
	}
	s.mu.Unlock()
	loaded, err := s.fetch(func(j Journal) (TraceRows, error) { return j.Turn(s.row(), index) })
	if err != nil {
		return nil, err
	}
	turn := loaded.turns[0].Turn
	turn.Index = index
	return turn, nil
}

// Count returns how many turns of a live session are as said. It looks at each, and as must not call the session.
func (s *Session) Count(as func(*Turn) bool) (turns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.turns {
		if as(turn) {
			turns++
		}
	}
	return turns
}

// Attempts returns the turns and the failed calls of that digest, oldest first, which began before a moment and had not ended by
// another. It is for the retries of calls that are known from the trace alone.
func (s *Session) Attempts(digest [32]byte, endedSince, begunBefore time.Time) (turns []*Turn, failures []*FailedCall) {
	within := func(d [32]byte, began time.Time, took time.Duration) bool {
		return d == digest && began.Before(begunBefore) && !began.Add(took).Before(endedSince)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.turns {
		if within(turn.Digest, turn.StartedAt, turn.Duration) {
			turns = append(turns, turn)
		}
	}
	for _, failure := range s.failures.kept() {
		if within(failure.Digest, failure.StartedAt, failure.Duration) {
			failures = append(failures, failure)
		}
	}
	return turns, failures
}

// fetch reads the trace from the journal, or a part of it.
func (s *Session) fetch(read func(Journal) (TraceRows, error)) (loadedTrace, error) {
	if !s.registry.journals() {
		return loadedTrace{}, ErrNotFound // it is one that was kept without its trace, see [Kept]
	}
	rows, err := read(s.registry.options.Journal)
	if err != nil {
		return loadedTrace{}, err
	}
	apart := store{memory: new(memory)}
	return apart.load(rows)
}

// unload gives the memory of a trace back once it is on disk to its end.
func (s *Session) unload() {
	s.mu.Lock()
	if !s.endWritten || s.unwritten > 0 {
		s.mu.Unlock()
		return
	}
	s.turns, s.lineage = nil, lineage{}
	s.failures.drop()
	s.unloaded = true
	s.mu.Unlock()
	s.store.drop()
}
