package proxy

import "time"

// leave notes that the client of a running call has gone, and reports whether
// the call is to be given up. With an answer that is kept for a retry it is only
// given up when none has come within the grace, or when one has come before: then
// nobody is to find the call any more, and it makes no turn.
func (t *attempts) leave(c claim, kept *outlet) (hopeless bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := c.attempt
	if a.state != attemptAttended || a.claims != c.number {
		return kept == nil
	}
	if t.outrun(a) {
		a.doubted.Store(true)
		t.forget(a)
		t.end(a, attemptFailed)
		if kept != nil {
			kept.unwanted = true
		}
		return true
	}
	a.state = attemptDeserted
	if a.kept = kept; kept == nil {
		return true
	}
	a.grace = time.AfterFunc(t.grace, func() { t.giveUp(c, kept) })
	return false
}

// outrun reports whether another attempt outruns this one, or has.
func (t *attempts) outrun(a *attempt) bool {
	for b := t.newest[a.key]; b != nil; b = b.older {
		if b != a && b.outruns(a) {
			return true
		}
	}
	for _, s := range t.settled.backward(a.key) {
		if s.endedAt > a.started && (int(s.tries) > a.tries || a.keyed) {
			return true
		}
	}
	return false
}

// gaveUp reports whether a running call is one that leave has given up as outrun.
func (t *attempts) gaveUp(c claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.state == attemptFailed
}

// giveUp ends the wait for a retry of a call.
func (t *attempts) giveUp(c claim, kept *outlet) {
	t.mu.Lock()
	a := c.attempt
	waited := a.state == attemptDeserted && a.claims == c.number
	if waited {
		a.kept, kept.unwanted = nil, true
	}
	t.mu.Unlock()
	if waited {
		kept.call.abandon()
	}
}

// answered notes that a call has ended with a turn. It comes before the client
// can know of it, as does failed: the client's next request may be here at once.
// To an attempt that is known to have ended neither does anything.
func (t *attempts) answered(c claim, turn int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := c.attempt
	if !a.running() {
		return
	}
	a.turn = turn
	if a.state == attemptDeserted {
		t.end(a, attemptUndelivered)
	} else {
		t.end(a, attemptDelivered)
	}
}

// progressed notes a turn of a dialogue that may go on.
func (t *attempts) progressed(c claim, turn int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.attempt.progress = turn + 1
}

// failed notes that a call has ended without a turn.
func (t *attempts) failed(c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := c.attempt; a.running() {
		t.end(a, attemptFailed)
	}
}

// lost notes that the client of an answered attempt did not get the turn. It
// reports false if that is not for c to say: a retry has claimed the attempt.
func (t *attempts) lost(c claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := c.attempt
	if a.claims != c.number {
		return false
	}
	if a.state == attemptDelivered {
		a.state = attemptUndelivered
	}
	return true
}

// end puts an attempt last among those that have ended.
func (t *attempts) end(a *attempt, state attemptState) {
	if a.kept != nil {
		a.grace.Stop()
		a.kept.unwanted = true
	}
	a.state, a.kept = state, nil
	if a.over != nil {
		close(a.over)
		a.over = nil
	}
	if a.forgotten {
		return
	}
	a.unlink()
	a.endedAt = t.now()
	t.line(a)
	t.fit(0)
}

// line puts an attempt among those that have ended.
func (t *attempts) line(a *attempt) {
	before := t.ended.previous
	for before != &t.ended && before.endedAt > a.endedAt {
		before = before.previous
	}
	a.previous, a.next = before, before.next
	before.next.previous, before.next = a, a
}

func (a *attempt) unlink() {
	if a.next != nil {
		a.previous.next, a.next.previous = a.next, a.previous
		a.previous, a.next = nil, nil
	}
}
