package prime

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

const (
	// pollSpacing is the least time between two questions about a tunnel that
	// lost its connection.
	pollSpacing = 5 * time.Second
	// retireMargin is how long before its expiry a tunnel takes nothing new, but
	// no more than a tenth of its life.
	retireMargin = 10 * time.Minute
)

// session is a tunnel: a registration, and the connection to frps that serves
// it. A registration that is over leaves the connection alone, because calls
// may still come through it; Close ends it. It is done when the registration is
// over, the connection is lost for good, or by Close.
type session struct {
	tunnel.Condition // its end; the state is the connection's

	driver  *Driver
	id, url string
	forward tunnel.Tunnel

	stop   context.CancelFunc // ends watch
	watch  sync.WaitGroup
	retire chan struct{}

	close  sync.Once
	closed chan struct{} // when the registration's deletion has ended
	ending error         // of closing the connection; read after closed
}

func (d *Driver) newTunnel(ctx context.Context, r *registration, forward tunnel.Tunnel) *session {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{
		driver: d, id: r.ID, url: strings.TrimRight(r.URL, "/"), forward: forward, stop: stop,
		retire: make(chan struct{}), closed: make(chan struct{}),
	}
	s.watch.Go(func() { s.watchOver(ctx, r.ExpiresAt.Time) })
	return s
}

// URL is the provider's.
func (s *session) URL() string { return s.url }

// Resume is empty: a registration's credentials are shown once and die with
// the process.
func (s *session) Resume() string { return "" }

// State is that of the connection to frps.
func (s *session) State() tunnel.State { return s.forward.State() }

// Changed is that of the connection to frps.
func (s *session) Changed() <-chan struct{} { return s.forward.Changed() }

// Retire is closed some time before the registration expires.
func (s *session) Retire() <-chan struct{} { return s.retire }

// Close ends the connection and then deletes the registration, which goes on
// for a few seconds when ctx ends before it.
func (s *session) Close(ctx context.Context) error {
	s.End(tunnel.ErrClosed)
	s.close.Do(func() {
		s.driver.closing.Go(func() {
			defer close(s.closed)
			s.stop()
			closing, done := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
			s.ending = s.forward.Close(closing)
			done()
			s.watch.Wait()
			s.driver.remove(ctx, s.id)
		})
	})
	select {
	case <-s.closed:
		return s.ending
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchOver asks about the registration from time to time, and soon after the
// connection is lost, which is how an ended one shows first.
func (s *session) watchOver(ctx context.Context, expires time.Time) {
	poll := time.NewTimer(vary(s.driver.poll))
	defer poll.Stop()
	retire := retirement(expires)
	defer func() { retire.Stop() }()
	asked := time.Now()
	changed := s.forward.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.forward.Done():
			s.End(s.forward.Err())
			return
		case <-retire.C:
			close(s.retire)
			retire.Stop()
			retire.C = nil
		case <-changed:
			changed = s.forward.Changed()
			if s.forward.State() != tunnel.Up {
				poll.Reset(min(vary(pollSpacing), time.Until(asked.Add(s.driver.poll))))
			}
		case <-poll.C:
			asked = time.Now()
			if over, _ := s.driver.over(ctx, s.id); over {
				s.End(tunnel.ErrExpired)
				return
			}
			poll.Reset(vary(s.driver.poll))
		}
	}
}

// retirement fires before the expiry, and never if that is unknown or past.
func retirement(expires time.Time) *time.Timer {
	left := time.Until(expires)
	if left <= 0 {
		timer := time.NewTimer(0)
		timer.Stop()
		return timer
	}
	return time.NewTimer(left - min(retireMargin, left/10))
}

// vary is d give or take a quarter, so that many tunnels do not ask at once.
func vary(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1) //nolint:gosec // not for secrecy
}
