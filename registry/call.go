package registry

import (
	"context"
	"errors"
	"time"
)

// CallInfo says what a call is.
type CallInfo struct {
	Dialect   string
	Route     string
	RequestID string
	Attempt   int           // how often the harness had tried before, as it says
	Digest    [32]byte      // of all that a retry of the call has in common with it; zero is unknown
	Waited    time.Duration // of [Options].AdmitTimeout, already

	// Cancel cancels the context that is given to Admit, which is then the call's own. If it is nil the call makes one of its own.
	Cancel context.CancelCauseFunc
}

// Call is one model call that was admitted. It has a place under its session's limits until it is closed. Its methods may be called
// by any number of goroutines.
type Call struct {
	session    *Session
	info       CallInfo
	ctx        context.Context
	cancel     context.CancelCauseFunc
	settings   *Settings // set before the call is handed out
	admittedAt time.Time

	// Session.mu guards these.
	phase   callPhase
	request *record
	row     uint32 // as one in flight, in the journal
	written bool   // it is or may be there; belongs to the journal's writer
	model   string
	added   uint32
	parent  int // or noParent
}

// noParent is the index of no turn.
const noParent = -1

// callPhase is how far a call has come.
type callPhase int

const (
	callWaiting    callPhase = iota // to be admitted
	callInflight                    // has a turn reserved
	callCommitting                  // its turn is on the way to the disk
	callRecorded                    // has become a turn or a failed call
	callClosed
)

// Admit waits until the session and the instance have room for one more call, in this order: the session's limits, its concurrency, its
// rate, the instance's concurrency, its rate. The call then has a turn reserved and must be closed.
//
// The error is a [StoppedError] or an [EndedError], also when that happens while the call waits; a [BusyError] after
// [Options].AdmitTimeout, or at once if a rate would take longer; [ErrDraining]; or the cause of ctx.
func (s *Session) Admit(ctx context.Context, info CallInfo) (*Call, error) {
	r := s.registry
	if r.draining.Load() {
		return nil, ErrDraining
	}
	c := &Call{session: s, info: info, parent: noParent}
	if c.ctx, c.cancel = ctx, info.Cancel; c.cancel == nil {
		c.ctx, c.cancel = context.WithCancelCause(ctx)
	}
	now := time.Now()
	if err := s.line(c, now); err != nil {
		c.cancel(err)
		return nil, err
	}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	if err := s.admit(c, now.Add(r.options.AdmitTimeout-info.Waited)); err != nil {
		s.unline(c)
		c.cancel(err)
		return nil, err
	}
	return c, nil
}

// line makes a call known to the session, which from then on can cancel it.
func (s *Session) line(c *Call, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse(now); err != nil {
		return err
	}
	s.calls[c] = struct{}{}
	return nil
}

func (s *Session) unline(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
}

// admit takes a call through the gates until a moment. If it fails the call has left them again.
func (s *Session) admit(c *Call, until time.Time) error {
	r := s.registry
	b := budget{until: until}
	defer b.stop()
	if err := s.gate.enter(c.ctx, &b); err != nil {
		return busy(err, BusyMaxInflight, 0)
	}
	if wait, err := s.pace.wait(c.ctx, &b); err != nil {
		s.gate.leave()
		return busy(err, BusyRequestsPerSecond, wait)
	}
	if err := r.gate.enter(c.ctx, &b); err != nil {
		s.gate.leave()
		return busy(err, BusyInstance, 0)
	}
	wait, err := r.pace.wait(c.ctx, &b)
	if err == nil {
		err = s.reserve(c)
	}
	if err != nil {
		r.gate.leave()
		s.gate.leave()
		return busy(err, BusyInstance, wait)
	}
	return nil
}

// reserve gives a call a place under the turn limit, if there still is one.
func (s *Session) reserve(c *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	now := time.Now()
	if err := s.refuse(now); err != nil {
		return err
	}
	c.phase, c.settings, c.admittedAt = callInflight, s.settings, now
	s.reserved++
	s.inflight++
	s.registry.inflight.Add(1)
	s.lastCallAt = now
	s.renew(now)
	if s.firstCallAt.IsZero() {
		s.firstCallAt = now
		s.touch()
		s.registry.schedule.set(&s.entry.alarm, s.nextDeadline())
	}
	return nil
}

// busy makes a BusyError of errBudgetOver. A call that has waited for concurrency may come back as soon as a client may at all: it is
// the queue that spaces calls, not the answer.
func busy(err error, what string, wait time.Duration) error {
	if !errors.Is(err, errBudgetOver) {
		return err
	}
	after := (wait + time.Second - 1).Truncate(time.Second)
	return &BusyError{What: what, RetryAfter: min(max(after, time.Second), time.Minute)}
}

// Context is done when the one given to Admit is, when the session ends (the cause is an [EndedError]), when it is stopped and its
// calls are cancelled (a [StoppedError]), and when the call is closed.
func (c *Call) Context() context.Context { return c.ctx }

// Settings returns the session's settings at the time the call was admitted. They must not be changed.
func (c *Call) Settings() *Settings { return c.settings }

// StopSession stops the session under a condition, such as [ConditionContextLength]. Calls in flight go on. It does nothing to a
// session that has stopped or ended.
func (c *Call) StopSession(condition string) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateActive {
		s.stop(condition, false)
	}
}

// Close gives the call's places back. A call that was recorded but became neither a turn nor a failed call is a failed one then,
// [FailureAborted]. Closing again does nothing.
func (c *Call) Close() {
	s := c.session
	s.mu.Lock()
	if c.phase == callClosed {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	var added, dropped *FailedCall
	if c.phase == callInflight {
		if c.request != nil {
			added, dropped = s.fail(c, Failure{
				Kind: FailureAborted, Message: "the call was given up", StartedAt: c.admittedAt, Duration: now.Sub(c.admittedAt),
			})
		} else {
			s.giveBack(c)
		}
	}
	c.phase = callClosed
	delete(s.calls, c)
	s.inflight--
	s.registry.inflight.Add(-1)
	if s.state != StateEnded {
		s.renew(now)
	}
	s.settle()
	s.mu.Unlock()

	if added != nil {
		s.store.exchange(added, dropped)
	}
	s.registry.gate.leave()
	s.gate.leave()
	c.cancel(nil)
}
