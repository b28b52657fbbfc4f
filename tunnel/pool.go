package tunnel

import (
	"context"
	"errors"
	"sync"

	"github.com/muxproxy/muxproxy/registry"
)

// ErrNoServer says that a pool has no server to place a session on.
var ErrNoServer = errors.New("no server in the pool")

// Pool places sessions on a fixed set of servers, the least loaded first. It
// caps nothing: servers with an address of their own share no tunnel. It is
// safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	members []member
	placed  map[string]int // session to index in members
}

// member is a server and the sessions on it, of which there are as many as the
// set says: a count kept beside it could be wrong.
type member struct {
	server   *Server
	sessions map[string]struct{}
}

// NewPool returns a pool of these servers. They stay the caller's to run and
// to shut down.
func NewPool(servers ...*Server) *Pool {
	p := &Pool{placed: make(map[string]int)}
	for _, s := range servers {
		p.members = append(p.members, member{server: s, sessions: make(map[string]struct{})})
	}
	return p
}

// Place puts the session on the server with the fewest, or tells where it is
// already. It fails with ErrNoServer, or when ctx is done.
func (p *Pool) Place(ctx context.Context, session string) (registry.Placement, error) {
	if err := context.Cause(ctx); err != nil {
		return registry.Placement{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.placed[session]; ok {
		return p.members[at].placement(), nil
	}
	if len(p.members) == 0 {
		return registry.Placement{}, ErrNoServer
	}
	least := 0
	for i, m := range p.members {
		if len(m.sessions) < len(p.members[least].sessions) {
			least = i
		}
	}
	p.members[least].sessions[session] = struct{}{}
	p.placed[session] = least
	return p.members[least].placement(), nil
}

// Release gives the session's place back. A session without one is no error.
func (p *Pool) Release(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.placed[session]
	if !ok {
		return
	}
	delete(p.placed, session)
	delete(p.members[at].sessions, session)
}

// Current tells where the session is.
func (p *Pool) Current(session string) (registry.Placement, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.placed[session]
	if !ok {
		return registry.Placement{}, false
	}
	return p.members[at].placement(), true
}

// placement is what a session on this server is told. The URL of a fixed
// server never changes, so neither does its generation.
func (m member) placement() registry.Placement {
	return registry.Placement{Server: m.server.ID(), URL: m.server.URL(), Generation: 1}
}
