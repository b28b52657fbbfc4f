package tunnel

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// state is what a pool knows, and the rules by which it changes. It does
// nothing by itself and holds no lock: the pool calls it under its own and does
// what comes out. A server's load is the set of its sessions, never a count
// kept beside it.
type state struct {
	elastic   bool
	multiplex int
	min, max  int
	idle      time.Duration

	members []*member // in the order in which they were made
	seats   map[string]*seat
	queue   []*request // first come, first served
	lastID  int

	quota    bool      // the provider allows no more before one is closed
	failures int       // openings that failed since one succeeded
	retryAt  time.Time // when the next server is opened that nobody waits for
	lastErr  error
	closed   bool // nothing is placed or opened any more
}

// member is a server of the pool.
type member struct {
	id       string
	created  time.Time
	state    ServerState
	url      string
	resume   string
	server   *Server // nil before it listens
	sessions map[string]struct{}
	empty    time.Time // since when sessions is
	lastErr  error

	attempting bool               // the driver is opening its tunnel
	held       bool               // it has, or had, a tunnel
	end        context.CancelFunc // makes it go; nil before its goroutine runs
	over       bool               // end is due
}

// seat is a session's place.
type seat struct {
	at         *member
	generation int
	move       *request // nil when it is to stay
}

func newState(o PoolOptions) state {
	s := state{
		elastic: !o.fixed(), multiplex: o.Multiplex, min: o.Min, max: o.Max, idle: o.Idle,
		seats: make(map[string]*seat),
	}
	if s.multiplex < 0 {
		s.multiplex = math.MaxInt32
	}
	return s
}

func newMember(id string, state ServerState, now time.Time) *member {
	return &member{id: id, created: now, state: state, sessions: make(map[string]struct{}), empty: now}
}

func (s *state) find(id string) *member {
	for _, m := range s.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// free is how many more sessions the member takes, now or when it is up.
func (s *state) free(m *member) int { return max(s.multiplex-len(m.sessions), 0) }

// sit gives the session a place on m, where there must be one, and takes it
// from where it was.
func (s *state) sit(session string, m *member, now time.Time) {
	at := s.seats[session]
	if at == nil {
		at = new(seat)
		s.seats[session] = at
	} else {
		s.leave(session, at.at, now)
	}
	at.at = m
	at.generation++
	m.sessions[session] = struct{}{}
}

// rise takes the session's place away.
func (s *state) rise(session string, now time.Time) {
	at := s.seats[session]
	if at == nil {
		return
	}
	delete(s.seats, session)
	s.leave(session, at.at, now)
	if at.move != nil {
		s.withdraw(at.move, ErrNotPlaced, now)
	}
}

// move puts the session into the queue for a place elsewhere, unless it is there
// already or its server is well. It is nil when the session has no place.
func (s *state) move(session string, now time.Time) *request {
	at := s.seats[session]
	if at == nil {
		return nil
	}
	if at.move != nil {
		return at.move
	}
	r := newRequest(session)
	if at.at.state != ServerReady {
		r.avoid, at.move = at.at, r
	}
	s.enter(r, now)
	return r
}

// leave lets a member go that only waited for its last session to end.
func (s *state) leave(session string, m *member, now time.Time) {
	delete(m.sessions, session)
	if len(m.sessions) > 0 {
		return
	}
	m.empty = now
	if m.state == ServerDraining || m.state == ServerLost {
		m.finish()
	}
}

// finish makes the member go.
func (m *member) finish() {
	m.over = true
	if m.end != nil {
		m.end()
	}
}

// remove forgets a member of which nothing is left, and its sessions with it.
func (s *state) remove(m *member, now time.Time) {
	for session := range m.sessions {
		s.rise(session, now)
	}
	s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
	if m.held {
		s.quota = false
	}
}

// ready puts the member into placement.
func (s *state) ready(m *member, now time.Time) {
	if m.state == ServerDraining || m.state == ServerLost {
		return
	}
	m.state, m.lastErr = ServerReady, nil
	s.failures, s.lastErr = 0, nil
	s.assign(now)
}

// failing takes the member out of placement for a while.
func (s *state) failing(m *member, err error) {
	m.lastErr = err
	if m.state == ServerReady {
		m.state = ServerFailing
	}
}

// lost takes it out for good.
func (s *state) lost(m *member, err error) {
	m.state, m.lastErr = ServerLost, err
	if len(m.sessions) == 0 {
		m.finish()
	}
}

// drain places nothing more on the member and lets it go when it is empty.
func (s *state) drain(m *member) {
	if m.state != ServerLost {
		m.state = ServerDraining
	}
	if len(m.sessions) == 0 {
		m.finish()
	}
}

// placement is what the session is told.
func (at *seat) placement() registry.Placement {
	return registry.Placement{Server: at.at.id, URL: at.at.url, Generation: at.generation}
}
