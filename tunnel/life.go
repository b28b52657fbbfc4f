package tunnel

import (
	"context"
	"errors"
	"time"
)

// closeTimeout is how long the end of a server may take once its calls are
// over, a hanging provider included.
const closeTimeout = 5 * time.Second

// life is what the goroutine of a member works with.
type life struct {
	pool   *Pool
	member *member
	reopen bool          // under the URL that it had in an earlier life of the process
	server *Server       // nil before it listens
	served chan error    // capacity 1: that the server listens no longer
	tunnel Tunnel        // nil before it is open
	told   chan struct{} // closed when Options.Lost came back; nil before it was called
}

// live is the member's goroutine, from its opening until ctx is done and nothing
// of it is left.
func (p *Pool) live(ctx context.Context, m *member) {
	l := &life{pool: p, member: m, server: m.server, reopen: m.resume != ""}
	defer l.dispose(ctx)
	switch {
	case l.server != nil:
		l.serve(ctx)
		l.tunnel = fixedTunnel(l.server.URL())
		l.watch(ctx)
	case m.url == "" || l.reopen:
		if err := l.open(ctx); err != nil {
			l.openFailed(ctx, err)
			break
		}
		l.watch(ctx)
	}
	l.mourn(ctx)
}

// serve lets the server answer until dispose.
func (l *life) serve(ctx context.Context) {
	l.served = make(chan error, 1)
	l.pool.lives.Go(func() { l.served <- l.server.Run(context.WithoutCancel(ctx)) })
}

// lost says that the public URL will not come back.
func (l *life) lost(err error) {
	l.noteLoss(err)
	l.pool.change(func(s *state, _ time.Time) { s.lost(l.member, err) })
}

func (l *life) noteLoss(err error) {
	l.pool.opts.Logger.Warn().Err(err).Str("server", l.member.id).Str("url", l.member.url).Msg("endpoint lost")
	if l.pool.opts.Observer.Lost != nil {
		l.pool.opts.Observer.Lost()
	}
}

// mourn says that the member is lost, until its sessions have left.
func (l *life) mourn(ctx context.Context) {
	for ctx.Err() == nil {
		l.tell()
		select {
		case <-ctx.Done():
		case <-time.After(max(l.pool.opts.ProbeInterval, time.Second)):
		}
	}
}

// tell calls Options.Lost with the sessions that are not moving yet, unless an
// earlier call is still running.
func (l *life) tell() {
	if l.told != nil {
		select {
		case <-l.told:
		default:
			return
		}
	}
	l.told = make(chan struct{})
	told, sessions := l.told, l.pool.stranded(l.member)
	if len(sessions) == 0 || l.pool.opts.Lost == nil {
		close(told)
		return
	}
	l.pool.lives.Go(func() {
		defer close(told)
		l.pool.opts.Lost(l.member.id, sessions)
	})
}

// stranded lists the sessions of a member that are not moving.
func (p *Pool) stranded(m *member) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sessions []string
	for session := range m.sessions {
		if p.state.seats[session].move == nil {
			sessions = append(sessions, session)
		}
	}
	return sessions
}

// dispose closes the tunnel, after the calls in flight unless the pool is shut
// down, then the server, and forgets the member.
func (l *life) dispose(ctx context.Context) {
	p, m := l.pool, l.member
	ctx = context.WithoutCancel(ctx)
	l.finishCalls(ctx)
	ctx, cancel := context.WithDeadline(ctx, p.closeBy())
	defer cancel()
	var err error
	if l.tunnel != nil {
		err = closeTunnel(ctx, l.tunnel)
	}
	if l.server != nil {
		err = errors.Join(err, l.server.Shutdown(ctx))
	}
	if err != nil {
		p.opts.Logger.Warn().Err(err).Str("server", m.id).Msg("closing a server failed")
	}
	if p.opts.Closed != nil && !p.isStopping() {
		p.opts.Closed(m.id)
	}
	p.change(func(s *state, now time.Time) {
		s.remove(m, now)
		s.assign(now)
	})
}

// finishCalls waits for the calls in flight as long as they can get through.
func (l *life) finishCalls(ctx context.Context) {
	if l.tunnel == nil {
		return
	}
	ctx, cancel := l.whileUp(ctx)
	defer cancel()
	l.pool.lives.Go(func() {
		select {
		case <-l.pool.stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	_ = l.server.Drain(ctx) // what is left cannot be answered any more
}

// whileUp is a context that is done with the tunnel, too.
func (l *life) whileUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	l.pool.lives.Go(func() {
		select {
		case <-l.tunnel.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// closeTunnel does not wait longer than ctx for a driver that does.
func closeTunnel(ctx context.Context, t Tunnel) error {
	closed := make(chan error, 1)
	go func() { closed <- t.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fixedTunnel is the public URL of a server that is reached without the pool's
// doing.
type fixedTunnel string

func (t fixedTunnel) URL() string               { return string(t) }
func (fixedTunnel) Resume() string              { return "" }
func (fixedTunnel) State() State                { return Up }
func (fixedTunnel) Changed() <-chan struct{}    { return nil }
func (fixedTunnel) Done() <-chan struct{}       { return nil }
func (fixedTunnel) Err() error                  { return nil }
func (fixedTunnel) Close(context.Context) error { return nil }
