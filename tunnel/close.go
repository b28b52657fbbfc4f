package tunnel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Quiesce places no more sessions, gives up openings and waits until no call is
// being answered. Servers and tunnels stay up. When ctx is done first, the error
// says how many calls are left on which server.
func (p *Pool) Quiesce(ctx context.Context) error {
	p.change(func(s *state, now time.Time) { s.close(now) })
	var errs []error
	for _, server := range p.servers() {
		if err := server.Drain(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", server.ID(), err))
		}
	}
	return errors.Join(errs...)
}

// Shutdown closes all tunnels and then all servers, at once, cutting the calls
// that are in flight; see Quiesce. It waits until nothing is left, or until ctx
// is done, which is an error: something hangs then.
func (p *Pool) Shutdown(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		p.mu.Lock()
		p.deadline = deadline
		p.mu.Unlock()
	}
	if !p.stop() {
		return p.shutdownServers(ctx)
	}
	left := make(chan struct{})
	go func() {
		p.lives.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close servers: %w", context.Cause(ctx))
	}
}

// stop ends what Run has started, and says whether it was called.
func (p *Pool) stop() (ran bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.close(time.Now())
	if !p.stopped {
		p.stopped = true
		close(p.stopping)
	}
	if p.cancel == nil {
		return false
	}
	p.cancel()
	return true
}

func (p *Pool) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// closeBy is when the end of a server must be over: early enough for Shutdown to
// see it.
func (p *Pool) closeBy() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := time.Now().Add(closeTimeout)
	if left := time.Until(p.deadline); !p.deadline.IsZero() && left < closeTimeout {
		by = time.Now().Add(left * 3 / 4)
	}
	return by
}

// shutdownServers closes the servers of a pool that was never run.
func (p *Pool) shutdownServers(ctx context.Context) error {
	var errs []error
	for _, server := range p.servers() {
		errs = append(errs, server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// servers are those that listen.
func (p *Pool) servers() []*Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*Server
	for _, m := range p.state.members {
		if m.server != nil {
			all = append(all, m.server)
		}
	}
	return all
}

// stays says that nothing has ended the member.
func (p *Pool) stays(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !m.over && !p.stopped
}

// close ends placing and opening.
func (s *state) close(now time.Time) {
	s.closed = true
	s.refuseAll(ErrPoolClosed, now)
	for _, m := range s.members {
		if m.state == ServerOpening || m.state == ServerProbing && s.elastic {
			s.drain(m)
		}
	}
}
