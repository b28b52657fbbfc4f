package registry

import "time"

// attend does what is due for a live session. It returns when to look at it again, or that its lease has run out and it has begun
// to end.
func (s *Session) attend(now time.Time) (again time.Time, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() != nil {
		return time.Time{}, false
	}
	s.endDuration(now)
	if len(s.calls) > 0 {
		// A call holds the lease, and the last one to leave renews it.
		s.renew(now)
	} else if !now.Before(s.expiresAt) {
		s.begin(ReasonLeaseExpired, now)
		return time.Time{}, true
	}
	return s.nextDeadline(), false
}

// nextDeadline returns when something can be due for a live session.
func (s *Session) nextDeadline() time.Time {
	if end, ok := s.durationEnd(); ok && end.Before(s.expiresAt) {
		return end
	}
	return s.expiresAt
}

// beginEnd makes the session refuse calls and cancels those it has. It reports false if the session had begun to end before.
func (s *Session) beginEnd(reason string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() != nil {
		return false
	}
	s.begin(reason, now)
	return true
}

func (s *Session) begin(reason string, now time.Time) {
	ended := &EndedError{ID: s.id, Reason: reason}
	s.ended.Store(ended)
	s.state, s.endedAt = StateEnded, now
	for c := range s.calls {
		c.cancel(ended)
	}
	s.finish(ended)
	s.settle()
}

// settle tells the one that ends the session when the last call is closed: it has recorded itself, and whether its turn was delivered.
func (s *Session) settle() {
	if s.state == StateEnded && s.inflight == 0 && s.final == nil {
		select {
		case <-s.settled:
		default:
			close(s.settled)
		}
	}
}

// seal records the calls that are still in flight as cancelled, waits for those that are being committed, and returns the summary, which
// is final.
func (s *Session) seal() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for c := range s.calls {
		if c.phase == callInflight {
			s.store.exchange(s.fail(c, Failure{
				Kind: FailureCancelled, Message: s.ended.Load().Error(),
				StartedAt: c.admittedAt, Duration: now.Sub(c.admittedAt),
			}))
		}
	}
	s.awaitCommits()
	summary := s.summary()
	summary.Inflight = 0
	s.final = &summary
	return summary
}

// awaitCommits waits for the turns that are on the way to the disk, with s.mu unlocked. No others set out: no call is in flight.
func (s *Session) awaitCommits() {
	if s.committing == 0 {
		return
	}
	s.sealing = make(chan struct{})
	s.mu.Unlock()
	<-s.sealing
	s.mu.Lock()
}
