package registry

import (
	"errors"
	"slices"
)

// draftedParts are the parts of a request that were not written yet, with the ids that they have if they are.
type draftedParts []*part

// draftParts gives the parts of a request that are not written their ids, bases first. It is for the journal's writer.
func (s *store) draftParts(r *record) draftedParts {
	if r == nil {
		return nil
	}
	var drafted draftedParts
	s.draft(&drafted, r.rest)
	for _, f := range r.fields {
		s.draft(&drafted, f.part)
	}
	return drafted
}

func (s *store) draft(drafted *draftedParts, p *part) {
	var chain []*part
	for ; p != nil && p.row == 0; p = p.base {
		chain = append(chain, p)
	}
	for _, p := range slices.Backward(chain) {
		s.lastRow++
		p.row = s.lastRow
		*drafted = append(*drafted, p)
	}
}

func (d draftedParts) rows() []PartRow {
	rows := make([]PartRow, 0, len(d))
	for _, p := range d {
		row := PartRow{ID: p.row, Prefix: p.prefix, Suffix: p.suffix, Middle: p.middle}
		if p.base != nil {
			row.Base = p.base.row
		}
		rows = append(rows, row)
	}
	return rows
}

// withdraw says that the parts were not written after all.
func (d draftedParts) withdraw() {
	for _, p := range d {
		p.row = 0
	}
}

// noteStarted has it written down that a call is in flight, unless that is over before. The caller holds Session.mu.
func (c *Call) noteStarted() {
	s := c.session
	if c.row == 0 {
		s.lastCallRow++
		c.row = s.lastCallRow
	}
	var drafted draftedParts
	s.registry.note(func() *Rows {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.phase != callInflight {
			return nil
		}
		drafted = s.store.draftParts(c.request)
		c.written = true
		return &Rows{
			Session: s.row(), Parts: drafted.rows(),
			Started: &CallRow{ID: c.row, About: encodeFailed(c.startedCall()), Request: c.request.encode()},
		}
	}, func(err error) {
		if err != nil {
			drafted.withdraw()
		}
	})
}

// startedCall is what a call in flight will have been if the process dies before it ends.
func (c *Call) startedCall() *FailedCall {
	return &FailedCall{
		Dialect: c.info.Dialect, Route: c.info.Route, RequestID: c.info.RequestID, Attempt: c.info.Attempt, Digest: c.info.Digest,
		Model: c.model, StartedAt: c.admittedAt,
		Error: CallError{Kind: FailureAborted, Message: "the proxy died while the call was in flight"},
	}
}

// noteFailed has a failed call written down. The caller holds s.mu.
func (s *Session) noteFailed(c *Call, f *FailedCall) {
	s.lastCallRow++
	f.row = s.lastCallRow
	s.unwritten++
	about := encodeFailed(f)
	var drafted draftedParts
	s.registry.note(func() *Rows {
		s.mu.Lock()
		state := s.encodeState() // with the call counted
		s.mu.Unlock()
		drafted = s.store.draftParts(f.request)
		rows := &Rows{
			Session: s.row(), State: state, Parts: drafted.rows(),
			Call: &CallRow{ID: f.row, About: about, Request: f.request.encode(), Body: f.Received},
		}
		if c.written {
			rows.StartedOver = c.row
		}
		return rows
	}, func(err error) {
		if err != nil {
			drafted.withdraw()
		}
		if errors.Is(err, ErrNotWritten) {
			return // it is tried again
		}
		s.mu.Lock()
		s.unwritten--
		s.mu.Unlock()
		s.unload()
	})
}

// commitment is a turn on its way to the disk.
type commitment struct {
	call      *Call
	turn      *Turn
	condition string
	about     []byte
	drafted   draftedParts
	done      chan error
	// After a failure: the failed call that it is, and the one whose place that took.
	added, dropped *FailedCall
}

// submit begins to write a turn. The caller holds s.mu.
func (s *Session) submit(c *Call, turn *Turn, condition string) (*commitment, error) {
	s.lastCallRow++
	turn.session, turn.row = s, s.lastCallRow
	w := &commitment{
		call: c, turn: turn, condition: condition, about: encodeTurn(turn, c.admittedAt, condition), done: make(chan error, 1),
	}
	if err := s.registry.options.Journal.Submit(Entry{Urgent: true, Rows: w.rows, Done: w.finish}); err != nil {
		return nil, err
	}
	c.phase = callCommitting
	s.committing++
	return w, nil
}

// wait returns once the turn is visible, or a failed call.
func (w *commitment) wait() error {
	err := <-w.done
	if w.added != nil {
		w.call.session.store.release(w.turn.shared)
		w.call.session.store.exchange(w.added, w.dropped)
		w.call.session.registry.reclaim()
	}
	return err
}

func (w *commitment) rows() *Rows {
	s := w.call.session
	w.drafted = append(s.store.draftParts(w.turn.request), s.store.draftParts(w.turn.shared)...)
	rows := &Rows{
		Session: s.row(), Parts: w.drafted.rows(),
		Call: &CallRow{
			ID: w.turn.row, Turn: true, About: w.about,
			Request: w.turn.request.encode(), Body: w.turn.response, Shared: w.turn.shared.encode(),
		},
	}
	if w.call.written {
		rows.StartedOver = w.call.row
	}
	return rows
}

// finish makes the turn visible once it is written, or the call a failed one. The journal calls it in the order in which the turns are
// written, which is therefore that of the trace.
func (w *commitment) finish(err error) {
	s := w.call.session
	if err != nil {
		w.drafted.withdraw()
	}
	s.mu.Lock()
	s.committing--
	if err == nil {
		s.publish(w.call, w.turn, w.condition)
	} else {
		w.added, w.dropped = s.fail(w.call, w.turn.failure(err))
	}
	if s.sealing != nil && s.committing == 0 {
		close(s.sealing)
	}
	s.mu.Unlock()
	w.done <- err
}

// failure is what became of a turn that could not be written.
func (t *Turn) failure(err error) Failure {
	return Failure{
		Kind: FailureCommitFailed, Status: t.Status, Message: err.Error(), Received: t.Response(),
		UpstreamRequestID: t.UpstreamRequestID, Upstream: t.Upstream, Replica: t.Replica,
		StartedAt: t.StartedAt, TimeToFirstEvent: t.TimeToFirstEvent, Duration: t.Duration,
	}
}
