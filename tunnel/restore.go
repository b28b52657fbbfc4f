package tunnel

import (
	"strconv"
	"strings"
	"time"
)

// Record is what is kept of a server to bring it back after a restart of the
// process.
type Record struct {
	Server string
	URL    string
	Resume string // see [Tunnel]
	// Sessions are those on the server, with the generation of their endpoint.
	Sessions map[string]int
}

// Restore puts sessions of an earlier life of the process back onto their
// servers. It is called before Run, which reopens each server under the URL it
// had; a static pool has it or has not. Servers whose URL does not come back are
// lost, and their sessions are told as ever.
func (p *Pool) Restore(records []Record) {
	p.change(func(s *state, now time.Time) {
		for _, r := range records {
			s.restore(r, now)
		}
	})
}

func (s *state) restore(r Record, now time.Time) {
	if n, err := strconv.Atoi(strings.TrimPrefix(r.Server, "srv-")); err == nil {
		s.lastID = max(s.lastID, n)
	}
	if len(r.Sessions) == 0 {
		return
	}
	m := s.withURL(r.URL)
	if m == nil {
		m = newMember(r.Server, ServerLost, now)
		if m.url = r.URL; s.elastic && r.Resume != "" {
			m.state, m.resume = ServerOpening, r.Resume
		}
		s.members = append(s.members, m)
	}
	for session, generation := range r.Sessions {
		m.sessions[session] = struct{}{}
		s.seats[session] = &seat{at: m, generation: generation}
	}
}

func (s *state) withURL(url string) *member {
	for _, m := range s.members {
		if m.url == url {
			return m
		}
	}
	return nil
}
