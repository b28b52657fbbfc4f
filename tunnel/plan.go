package tunnel

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Servers that nobody waits for are opened again this long after an opening
// has failed: twice as long after each failure, up to the longer one.
const (
	firstWarmRetry = time.Second
	lastWarmRetry  = time.Minute
)

// coming is how many places come with the servers that are not up yet.
func (s *state) coming() int {
	n := 0
	for _, m := range s.members {
		if m.state == ServerOpening || m.state == ServerProbing {
			n += s.free(m)
		}
	}
	return n
}

// standing is how many servers there are, without those that are lost.
func (s *state) standing() int {
	n := 0
	for _, m := range s.members {
		if m.state != ServerLost {
			n++
		}
	}
	return n
}

// kept is how many of them stay.
func (s *state) kept() int {
	n := 0
	for _, m := range s.members {
		if m.state != ServerLost && m.state != ServerDraining {
			n++
		}
	}
	return n
}

// plan decides what servers are made and which ones go. It returns the new ones
// and when to plan again even if nothing happens; zero is never.
func (s *state) plan(now time.Time) (fresh []*member, next time.Time) {
	if s.closed || !s.elastic {
		return nil, time.Time{}
	}
	missing, coming := s.missing(), s.coming()
	for ; missing > coming && s.canGrow(); coming += s.multiplex {
		fresh = append(fresh, s.add(now))
	}
	for s.kept() < s.min && s.canGrow() {
		if now.Before(s.retryAt) {
			next = s.retryAt
			break
		}
		fresh = append(fresh, s.add(now))
		coming += s.multiplex
	}
	s.cancelUnneeded(missing, coming)
	return fresh, earlier(next, s.closeIdle(now))
}

func (s *state) canGrow() bool {
	standing := s.standing()
	return (s.max == 0 || standing < s.max) && (!s.quota || standing == 0)
}

func (s *state) add(now time.Time) *member {
	s.lastID++
	m := newMember(fmt.Sprintf("srv-%d", s.lastID), ServerOpening, now)
	s.members = append(s.members, m)
	return m
}

// cancelUnneeded gives up openings that still wait for their turn when those
// they were for have left or got a place elsewhere, the newest first.
func (s *state) cancelUnneeded(missing, coming int) {
	for _, m := range slices.Backward(slices.Clone(s.members)) {
		if coming-s.multiplex < missing || s.kept() <= s.min {
			return
		}
		if m.state == ServerOpening && !m.attempting && len(m.sessions) == 0 {
			coming -= s.multiplex
			s.drain(m)
		}
	}
}

// closeIdle lets servers go that have been empty long enough, and says when the
// next one will have been.
func (s *state) closeIdle(now time.Time) (next time.Time) {
	if s.idle < 0 {
		return next
	}
	for _, m := range s.members {
		if s.kept() <= s.min {
			return time.Time{}
		}
		if m.state != ServerReady || len(m.sessions) > 0 {
			continue
		}
		if due := m.empty.Add(s.idle); due.After(now) {
			next = earlier(next, due)
			continue
		}
		s.drain(m)
	}
	return next
}

// openFailed lets a server go that could not be opened and answers those who
// waited for it. Callers that a quota keeps from a new server wait for a place
// on those that there are.
func (s *state) openFailed(m *member, err error, now time.Time) {
	s.lastErr = err
	s.failures++
	s.retryAt = now.Add(min(firstWarmRetry<<min(s.failures-1, 10), lastWarmRetry))
	_, quota := errors.AsType[*QuotaError](err)
	s.drain(m)
	switch {
	case !quota:
		s.refuse(err, now)
	case s.standing() == 1: // which is m
		s.refuseAll(err, now)
	default:
		s.quota = true
	}
}

// earlier is the earlier one; a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
