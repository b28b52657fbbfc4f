package tunnel

import (
	"errors"
	"fmt"
	"time"
)

// ServerState is where a server of a pool is in its life.
type ServerState string

// The states of a server.
const (
	ServerOpening  ServerState = "opening"  // its tunnel is being made
	ServerProbing  ServerState = "probing"  // its public URL has not answered yet
	ServerReady    ServerState = "ready"    // takes sessions
	ServerFailing  ServerState = "failing"  // its public URL does not answer now
	ServerDraining ServerState = "draining" // takes no more sessions, and goes when it is empty
	ServerLost     ServerState = "lost"     // its public URL will not come back
)

// ServerStates lists them all.
func ServerStates() []ServerState {
	return []ServerState{ServerOpening, ServerProbing, ServerReady, ServerFailing, ServerDraining, ServerLost}
}

// ServerStatus is a server as it is at the moment.
type ServerStatus struct {
	ID        string
	State     ServerState
	URL       string // empty before its tunnel is up
	Driver    string
	Sessions  int
	Capacity  int // 0 is no cap
	CreatedAt time.Time
	LastError string // of its last opening or probe, empty when that went well
}

// Stats are the numbers of a pool at the moment.
type Stats struct {
	Servers map[ServerState]int // has every state
	Used    int                 // places with a session
	Free    int                 // places without one on ready servers; 0 when there is no cap
	Coming  int                 // places on servers that are not up yet; 0 when there is no cap
	Waiting int                 // places that callers wait for
}

// errNoReadyServer is why a pool is not ready.
var errNoReadyServer = errors.New("no server is ready")

// Servers lists the servers in the order in which they were made.
func (p *Pool) Servers() []ServerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]ServerStatus, len(p.state.members))
	for i, m := range p.state.members {
		all[i] = ServerStatus{
			ID: m.id, State: m.state, URL: m.url, Driver: p.opts.driver(),
			Sessions: len(m.sessions), Capacity: max(p.opts.Multiplex, 0), CreatedAt: m.created,
		}
		if m.lastErr != nil {
			all[i].LastError = m.lastErr.Error()
		}
	}
	return all
}

// Stats counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	stats := Stats{Servers: make(map[ServerState]int), Used: len(s.seats), Waiting: s.missing()}
	for _, state := range ServerStates() {
		stats.Servers[state] = 0
	}
	for _, m := range s.members {
		stats.Servers[m.state]++
		if m.state == ServerReady && p.opts.Multiplex > 0 {
			stats.Free += s.free(m)
		}
	}
	if p.opts.Multiplex > 0 {
		stats.Coming = s.coming()
	}
	return stats
}

// Ready is nil when a server takes sessions, or when the pool keeps none and the
// last opening went well. Otherwise it says what is wrong.
func (p *Pool) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	if s.closed {
		return ErrPoolClosed
	}
	for _, m := range s.members {
		if m.state == ServerReady {
			return nil
		}
	}
	switch why := s.unready(); {
	case s.elastic && s.min == 0 && s.lastErr == nil:
		return nil
	case why != nil:
		return fmt.Errorf("%w: %w", errNoReadyServer, why)
	default:
		return errNoReadyServer
	}
}

// unready says what is wrong with the first server of which that is known, else
// with the last one that could not be opened; nil while nothing went wrong yet.
func (s *state) unready() error {
	for _, m := range s.members {
		switch {
		case m.lastErr != nil:
			return fmt.Errorf("%s is %s: %w", m.id, m.state, m.lastErr)
		case m.state == ServerDraining:
			return fmt.Errorf("%s is %s", m.id, m.state)
		}
	}
	return s.lastErr
}
