package tunnel

import (
	"slices"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// request is a caller in the queue. It takes places as they become free and is
// answered when it has them all.
type request struct {
	waits []string // sessions without a place yet
	avoid *member  // of a session that moves: where it is

	placed map[string]registry.Placement // the others
	seated []string                      // those of them that this request seated
	done   chan struct{}                 // closed when it is answered
	err    error
}

func newRequest(sessions ...string) *request {
	return &request{
		waits: slices.Clone(sessions), placed: make(map[string]registry.Placement, len(sessions)), done: make(chan struct{}),
	}
}

// enter puts a caller at the end of the queue. Sessions that have a place keep
// it.
func (s *state) enter(r *request, now time.Time) {
	if r.avoid == nil {
		r.waits = slices.DeleteFunc(r.waits, func(session string) bool {
			at, ok := s.seats[session]
			if ok {
				r.placed[session] = at.placement()
			}
			return ok
		})
	}
	switch {
	case len(r.waits) == 0:
		close(r.done)
	case s.closed:
		s.undo(r, now)
		r.answer(ErrPoolClosed)
	case len(r.waits) > s.ceiling():
		s.undo(r, now)
		r.answer(ErrPoolFull)
	default:
		s.queue = append(s.queue, r)
		s.assign(now)
	}
}

// assign gives the free places to those who are first in line.
func (s *state) assign(now time.Time) {
	full := s.full()
	s.queue = slices.DeleteFunc(s.queue, func(r *request) bool {
		if full {
			return false
		}
		s.serve(r, now)
		if len(r.waits) > 0 {
			full = s.full() // or what is free is where the session moves away from
			return false
		}
		r.answer(nil)
		return true
	})
}

// serve gives the request places while there are free ones.
func (s *state) serve(r *request, now time.Time) {
	for len(r.waits) > 0 {
		session := r.waits[0]
		if at := s.seats[session]; r.avoid != nil || at == nil {
			m := s.pick(r.avoid)
			if m == nil {
				return
			}
			s.sit(session, m, now)
			s.seats[session].move = nil
			r.seated = append(r.seated, session)
		}
		r.waits = r.waits[1:]
		r.placed[session] = s.seats[session].placement()
	}
}

// pick finds a server with a free place. Of an elastic pool it is the fullest
// one, so that the others get empty and can be closed, else the least loaded.
func (s *state) pick(avoid *member) *member {
	var best *member
	for _, m := range s.members {
		if m.state != ServerReady || m == avoid || s.free(m) == 0 {
			continue
		}
		if best == nil || (s.elastic && len(m.sessions) > len(best.sessions)) || (!s.elastic && len(m.sessions) < len(best.sessions)) {
			best = m
		}
	}
	return best
}

func (s *state) full() bool { return s.pick(nil) == nil }

// ceiling is how many places the pool can have at most, beside those of lost
// servers.
func (s *state) ceiling() int {
	if !s.elastic {
		return s.multiplex * s.standing()
	}
	if s.max == 0 {
		return int(^uint(0) >> 1)
	}
	return s.multiplex * s.max
}

// withdraw takes a caller that waits no longer out of the queue.
func (s *state) withdraw(r *request, err error, now time.Time) {
	at := slices.Index(s.queue, r)
	if at < 0 {
		return
	}
	s.queue = slices.Delete(s.queue, at, at+1)
	s.undo(r, now)
	r.answer(err)
	s.assign(now)
}

// undo takes back what a request has of what it does not get as a whole.
func (s *state) undo(r *request, now time.Time) {
	if r.avoid != nil {
		for _, session := range r.waits {
			if at := s.seats[session]; at != nil {
				at.move = nil
			}
		}
		return
	}
	for _, session := range r.seated {
		s.rise(session, now)
	}
}

// answer lets the caller go on. It is called once.
func (r *request) answer(err error) {
	r.err = err
	close(r.done)
}

// missing is how many places all callers wait for.
func (s *state) missing() int {
	n := 0
	for _, r := range s.queue {
		n += len(r.waits)
	}
	return n
}

// refuse answers the callers that an opening was for when it has failed: those
// who are in line behind the places that still come up, as many as a server has
// places.
func (s *state) refuse(err error, now time.Time) {
	from := s.coming()
	to := from + s.multiplex
	at := 0
	var refused []*request
	for _, r := range s.queue {
		first := at
		at += len(r.waits)
		if at > from && first < to {
			refused = append(refused, r)
		}
	}
	for _, r := range refused {
		s.withdraw(r, err, now)
	}
}

// refuseAll answers everybody in the queue.
func (s *state) refuseAll(err error, now time.Time) {
	for len(s.queue) > 0 {
		s.withdraw(s.queue[len(s.queue)-1], err, now)
	}
}
