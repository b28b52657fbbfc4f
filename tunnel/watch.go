package tunnel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// firstRetry is the pause before a failing URL is probed again. It doubles up to
// the regular interval.
const firstRetry = 100 * time.Millisecond

// errReconnecting is why a server is failing whose tunnel says so itself.
var errReconnecting = errors.New("tunnel is reconnecting")

// watch keeps an eye on a public URL until ctx is done or the URL is lost.
func (l *life) watch(ctx context.Context) {
	ctx, cancel := l.whileUp(ctx)
	defer cancel()
	h := newHealth(l)
	defer h.stop()
	retire := retirement(l.tunnel)
	for news := false; ; {
		changed := l.tunnel.Changed() // before State, so that no change is missed
		if up := l.tunnel.State() == Up; news || !up && h.up {
			h.connected(ctx, up)
		}
		news = false
		select {
		case <-ctx.Done():
			if l.pool.stays(l.member) {
				l.lost(l.tunnel.Err())
			}
			return
		case <-changed:
			news = true
		case <-retire:
			retire = nil
			l.pool.change(func(s *state, _ time.Time) { s.drain(l.member) })
		case <-h.timer.C:
			h.probe(ctx)
		case err := <-h.result:
			h.probed(ctx, err)
		case <-h.grace.C:
			if !l.pool.opts.fixed() {
				l.lost(h.err)
				return
			}
			h.outlast()
		case err := <-l.served:
			if l.brokeDown(err) {
				return
			}
		}
	}
}

// retirement is closed when the tunnel's end is near, never if it does not say.
func retirement(t Tunnel) <-chan struct{} {
	if r, ok := t.(Retirer); ok {
		return r.Retire()
	}
	return nil
}

// brokeDown says whether a server that stopped listening is the end of the
// member: another takes its place, except in a static pool.
func (l *life) brokeDown(err error) bool {
	if !l.pool.opts.fixed() {
		l.lost(err)
		return true
	}
	select {
	case l.pool.broken <- err:
	default:
	}
	return false
}

// health is what is known of a public URL.
type health struct {
	life   *life
	up     bool               // as far as the tunnel knows
	ready  bool               // as far as the last probe knows
	err    error              // why it is not ready
	retry  time.Duration      // the pause before the next probe while it is not
	timer  *time.Timer        // the next probe
	grace  *time.Timer        // when a URL that is not ready is lost
	result chan error         // of the probe under way, else nil
	cut    context.CancelFunc // ends that probe
	lost   bool               // the URL of a static pool has failed for longer than its grace
}

func newHealth(l *life) *health {
	h := &health{life: l, up: true, ready: true, retry: firstRetry, timer: time.NewTimer(0), grace: time.NewTimer(0)}
	h.grace.Stop()
	h.timer.Stop()
	switch {
	case l.pool.opts.ProbeInterval < 0: // nothing is probed
	case l.pool.opts.fixed():
		h.ready, h.err = false, errNoReadyServer
		h.timer.Reset(0)
		h.grace.Reset(l.pool.opts.EndpointGrace)
	default:
		h.timer.Reset(h.interval())
	}
	return h
}

func (h *health) stop() {
	h.timer.Stop()
	h.grace.Stop()
}

// interval is the time between two probes: so much less than ProbeInterval that
// even a fault that lets the probe and its repetition hang is known within it.
func (h *health) interval() time.Duration {
	o := h.life.pool.opts
	d := max(o.ProbeInterval-2*o.ProbeTimeout, o.ProbeInterval/2)
	return d - rand.N(max(d/10, 1))
}

// connected notes what the tunnel knows of itself. A probe from before counts
// for nothing. While the tunnel reconnects there is nothing to probe; when it is
// up again the next probe comes at once.
func (h *health) connected(ctx context.Context, up bool) {
	h.up = up
	h.timer.Stop()
	if h.result != nil {
		h.cut()
	}
	switch {
	case !up:
		h.fail(errReconnecting)
	case h.result == nil:
		h.probe(ctx)
	}
}

// probe begins a probe. The first failure of a server that was ready is not
// believed before a second one.
func (h *health) probe(ctx context.Context) {
	if h.result != nil || !h.up {
		return
	}
	result, l, twice := make(chan error, 1), h.life, h.ready
	ctx, cancel := context.WithCancel(ctx)
	h.result, h.cut = result, cancel
	l.pool.lives.Go(func() {
		defer cancel()
		err := l.probe(ctx, l.member.url)
		if err != nil && twice && ctx.Err() == nil {
			l.probeFailed()
			if err = l.probe(ctx, l.member.url); err != nil && ctx.Err() == nil {
				l.probeFailed()
			}
		}
		result <- err
	})
}

func (l *life) probeFailed() {
	if l.pool.opts.Observer.ProbeFailed != nil {
		l.pool.opts.Observer.ProbeFailed()
	}
}

// probed takes the result of a probe.
func (h *health) probed(ctx context.Context, err error) {
	h.result = nil
	switch {
	case !h.up || ctx.Err() != nil:
	case errors.Is(err, context.Canceled): // it began before the tunnel was up again
		h.probe(ctx)
	case err != nil:
		h.fail(err)
		h.timer.Reset(h.retry)
		h.retry = min(2*h.retry, h.interval())
	default:
		h.succeed()
		h.timer.Reset(h.interval())
	}
}

// fail takes the server out of placement, and lets its grace run from the first
// time.
func (h *health) fail(err error) {
	l, first := h.life, h.ready
	h.ready, h.err = false, err
	l.pool.change(func(s *state, _ time.Time) { s.failing(l.member, err) })
	if first {
		h.grace.Reset(l.pool.opts.EndpointGrace)
		l.pool.opts.Logger.Warn().Err(err).Str("server", l.member.id).Msg("server fails")
	}
}

// outlast is the loss of a URL that can come back, because it is not the pool's.
func (h *health) outlast() {
	if !h.lost {
		h.lost = true
		h.life.noteLoss(h.err)
	}
	h.life.tell()
	h.grace.Reset(h.life.pool.opts.ProbeInterval)
}

// succeed puts the server back into placement.
func (h *health) succeed() {
	l, first := h.life, !h.ready
	h.ready, h.lost, h.err, h.retry = true, false, nil, firstRetry
	if !first {
		return
	}
	h.grace.Stop()
	l.pool.change(func(s *state, now time.Time) { s.ready(l.member, now) })
	l.pool.opts.Logger.Info().Str("server", l.member.id).Msg("server answers")
}
