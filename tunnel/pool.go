package tunnel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// Pool places sessions on servers. An elastic pool opens servers while more
// callers wait than there are places, and closes those that stay empty; a static
// one has the servers it was given. Callers are served in the order in which
// they came.
//
// A server takes sessions while probes through its public URL come back with
// its own nonce. One that fails is left alone until it is lost for good; its
// sessions keep their places until they are released or moved, and calls that
// get through are never cut.
//
// A Pool does nothing on its own before Run, except that the servers of a static
// pool without probes take sessions from the start. Whoever made one must call
// Shutdown, Run or no Run. It is safe for concurrent use.
type Pool struct {
	opts     PoolOptions
	wake     chan struct{} // capacity 1: what is planned may have changed
	broken   chan error    // capacity 1: a server of a static pool stopped listening
	stopping chan struct{} // closed by Shutdown
	lives    sync.WaitGroup

	mu       sync.Mutex
	state    state
	stopped  bool               // Shutdown was called
	deadline time.Time          // of Shutdown, if it has one
	cancel   context.CancelFunc // ends what Run has started; nil before
}

// NewPool checks the options.
func NewPool(o PoolOptions) (*Pool, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	p := &Pool{
		opts: o, state: newState(o),
		wake: make(chan struct{}, 1), broken: make(chan error, 1), stopping: make(chan struct{}),
	}
	for _, server := range o.Servers {
		m := newMember(server.ID(), ServerProbing, time.Now())
		if o.ProbeInterval < 0 {
			m.state = ServerReady
		}
		m.server, m.url = server, server.URL()
		p.state.members = append(p.state.members, m)
	}
	return p, nil
}

// Place gives every session a place, all from one position in the queue, and
// waits for that until ctx is done; the error then is its cause. Otherwise it is
// ErrPoolFull, ErrBacklog, ErrPoolClosed or an [*OpenError]. Either all sessions
// have a place afterwards or none of those that had none before. The placements
// are in the order of the sessions.
//
// A place is held until Release. One session is placed by one caller at a time.
func (p *Pool) Place(ctx context.Context, sessions ...string) ([]registry.Placement, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	r := newRequest(sessions...)
	p.change(func(s *state, now time.Time) { s.enter(r, now) })
	if err := p.await(ctx, r); err != nil {
		return nil, err
	}
	places := make([]registry.Placement, len(sessions))
	for i, session := range sessions {
		places[i] = r.placed[session]
	}
	return places, nil
}

// Move gives a session whose server is not ready a place on another one, and
// waits for it as Place does; meanwhile it keeps its old place. A session on a
// server that is ready stays there, so that moving it again does nothing. Move
// fails with ErrNotPlaced when the session has no place, or is released while it
// waits.
func (p *Pool) Move(ctx context.Context, session string) (registry.Placement, error) {
	if err := context.Cause(ctx); err != nil {
		return registry.Placement{}, err
	}
	var r *request
	p.change(func(s *state, now time.Time) { r = s.move(session, now) })
	if r == nil {
		return registry.Placement{}, ErrNotPlaced
	}
	if err := p.await(ctx, r); err != nil {
		return registry.Placement{}, err
	}
	return r.placed[session], nil
}

// await waits until the request is answered, or takes it back.
func (p *Pool) await(ctx context.Context, r *request) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		// If it has just been answered, that stands.
		p.change(func(s *state, now time.Time) { s.withdraw(r, context.Cause(ctx), now) })
		<-r.done
	}
	return r.err
}

// Release gives the session's place to the first in line. A session without one
// is no error.
func (p *Pool) Release(session string) {
	p.change(func(s *state, now time.Time) {
		s.rise(session, now)
		s.assign(now)
	})
}

// Current tells where the session is.
func (p *Pool) Current(session string) (registry.Placement, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.state.seats[session]
	if !ok {
		return registry.Placement{}, false
	}
	return at.placement(), true
}

// Drain places nothing more on the server, and closes it when its last session
// is released and no call is being answered. It fails with ErrNoServer.
func (p *Pool) Drain(id string) error {
	var err error
	p.change(func(s *state, _ time.Time) {
		if m := s.find(id); m != nil {
			s.drain(m)
			return
		}
		err = fmt.Errorf("drain %s: %w", id, ErrNoServer)
	})
	return err
}

// change changes the state and lets Run see what follows from it.
func (p *Pool) change(f func(*state, time.Time)) {
	p.mu.Lock()
	f(&p.state, time.Now())
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run serves, opens and closes servers until Shutdown is called, or until ctx is
// done, which cuts calls in flight. It fails when a server of a static pool
// stops listening; the others go on then until Shutdown.
func (p *Pool) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !p.start(life, cancel) {
		cancel()
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next := p.grow(life); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-p.wake:
		case <-timer.C:
		case err := <-p.broken:
			return err
		case <-ctx.Done():
			p.stop()
			p.lives.Wait()
			return nil
		case <-p.stopping:
			p.lives.Wait()
			return nil
		}
	}
}

// start begins the lives of the members that there are from the start.
func (p *Pool) start(ctx context.Context, cancel context.CancelFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.cancel = cancel
	for _, m := range p.state.members {
		p.bring(ctx, m)
	}
	return true
}

// grow does what is planned, and says when to plan again.
func (p *Pool) grow(ctx context.Context) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh, next := p.state.plan(time.Now())
	for _, m := range fresh {
		p.bring(ctx, m)
	}
	return next
}

// bring starts the member's life.
func (p *Pool) bring(ctx context.Context, m *member) {
	ctx, m.end = context.WithCancel(ctx)
	if m.over {
		m.end()
	}
	p.lives.Go(func() { p.live(ctx, m) })
}
