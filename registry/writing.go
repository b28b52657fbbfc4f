package registry

import "errors"

// write submits an entry and waits until it is written.
func (r *Registry) write(rows func() *Rows) error {
	done := make(chan error, 1)
	err := r.options.Journal.Submit(Entry{Urgent: true, Rows: rows, Done: func(err error) { done <- err }})
	if err != nil {
		return err
	}
	return <-done
}

// note submits an entry that nobody waits for, again and again until it is written, cannot be, or the journal is closed. If done is not
// nil it is told how it went, each time.
func (r *Registry) note(rows func() *Rows, done func(error)) {
	// A journal that is closed takes nothing any more, and nobody is told.
	_ = r.options.Journal.Submit(Entry{Rows: rows, Done: func(err error) {
		if done != nil {
			done(err)
		}
		if errors.Is(err, ErrNotWritten) {
			r.note(rows, done)
		}
	}})
}

func (r *Registry) journals() bool { return r.options.Journal != nil }

func (s *Session) row() uint32 { return uint32(s.number) }

// touch has the session's state written down. The caller holds s.mu.
func (s *Session) touch() {
	if !s.registry.journals() || s.touched {
		return
	}
	s.touched = true
	s.registry.note(s.stateRows, nil)
}

// stateRows is the session's state when it is written.
func (s *Session) stateRows() *Rows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = false
	return &Rows{Session: s.row(), State: s.encodeState()}
}

// noteSpec has the session's spec written down.
func (s *Session) noteSpec() {
	if !s.registry.journals() {
		return
	}
	s.registry.note(func() *Rows {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &Rows{Session: s.row(), Spec: s.spec.encode()}
	}, nil)
}

// saveState writes the session's state and waits for it.
func (s *Session) saveState() error {
	if !s.registry.journals() {
		return nil
	}
	return s.registry.write(s.stateRows)
}

// saveSpec writes a spec that is not the session's yet, and waits for it.
func (s *Session) saveSpec(next *Spec) error {
	if !s.registry.journals() {
		return nil
	}
	spec := next.encode()
	return s.registry.write(func() *Rows { return &Rows{Session: s.row(), Spec: spec} })
}

// saveSecret writes the hash of a secret that is not the session's yet, and waits for it.
func (s *Session) saveSecret(hash secretHash) error {
	if !s.registry.journals() {
		return nil
	}
	return s.registry.write(func() *Rows { return &Rows{Session: s.row(), Secret: hash[:]} })
}

// saveSessions writes new sessions and waits for them.
func (r *Registry) saveSessions(registrations []Registration) error {
	if !r.journals() {
		return nil
	}
	written := make(chan error, len(registrations))
	submitted := 0
	var errs []error
	for _, registration := range registrations {
		if !registration.Created {
			continue
		}
		s := registration.Session
		r.mu.RLock()
		secret := s.entry.secret
		r.mu.RUnlock()
		err := r.options.Journal.Submit(Entry{
			Urgent: true,
			Rows: func() *Rows {
				s.mu.Lock()
				defer s.mu.Unlock()
				return &Rows{Session: s.row(), Created: &SessionRow{
					Number: s.row(), ID: s.id, Secret: secret[:], Spec: s.spec.encode(), State: s.encodeState(), Traced: true,
				}}
			},
			Done: func(err error) { written <- err },
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		submitted++
	}
	for range submitted {
		errs = append(errs, <-written)
	}
	return errors.Join(errs...)
}

// noteDelivered has it written down whether a turn was delivered, as is known when that is done: a retry may have got it meanwhile.
func (s *Session) noteDelivered(t *Turn) {
	s.registry.note(func() *Rows {
		return &Rows{Session: s.row(), Delivered: &DeliveryRow{t.row, t.delivered.Load() == deliverySucceeded}}
	}, nil)
}

// noteDropped has parts and calls removed that nothing needs any more.
func (s *Session) noteDropped(parts []*part, calls ...uint32) {
	if len(parts) == 0 && len(calls) == 0 {
		return
	}
	s.registry.note(func() *Rows {
		rows := &Rows{Session: s.row(), DroppedCalls: calls}
		for _, p := range parts {
			if p.row != 0 {
				rows.DroppedParts = append(rows.DroppedParts, p.row)
			}
		}
		if len(rows.DroppedParts) == 0 && len(calls) == 0 {
			return nil
		}
		return rows
	}, nil)
}

// noteEnd has it written down that a session has ended, which could not be at the time.
func (r *Registry) noteEnd(s *Session) {
	r.note(s.stateRows, s.noteEndWritten)
}

// noteEndWritten notes whether it is written down that the session has ended.
func (s *Session) noteEndWritten(err error) {
	s.mu.Lock()
	s.endWritten = err == nil
	s.mu.Unlock()
	s.unload()
}

// noteTraceDropped has an ended session's trace removed.
func (r *Registry) noteTraceDropped(session uint32) {
	if r.journals() {
		r.note(func() *Rows { return &Rows{Session: session, TraceDropped: true} }, nil)
	}
}

// noteForgotten has a session removed.
func (r *Registry) noteForgotten(session uint32) {
	if r.journals() {
		r.note(func() *Rows { return &Rows{Session: session, TraceDropped: true, Forgotten: true} }, nil)
	}
}
