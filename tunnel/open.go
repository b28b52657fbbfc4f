package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The attempts to open one tunnel, and the pause after the first, which doubles
// after each up to the longest and is up to half as long again.
const (
	maxAttempts  = 6
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

// open brings the member up: it listens, has a tunnel, and is reached through
// it. What there is of it when that fails is left to dispose.
func (l *life) open(ctx context.Context) error {
	m, start := l.member, time.Now()
	for attempt := 1; ; attempt++ {
		began, err := l.attempt(ctx)
		if err == nil {
			return l.enter(ctx, began, attempt)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrBacklog) {
			return err
		}
		if final(err) || l.givesUp(attempt, time.Since(start)) {
			return &OpenError{Server: m.id, Attempts: attempt, Err: err}
		}
		l.pool.opts.Logger.Info().Err(err).Str("server", m.id).Int("attempt", attempt).Msg("opening a tunnel failed, trying again")
		l.pool.change(func(*state, time.Time) { m.lastErr = err })
		if err := Pause(ctx, l.afterAttempt(attempt, err)); err != nil {
			return err
		}
	}
}

// givesUp says that enough was tried. The old URL of a restored server gets as
// long as one that fails: its provider may still hold the registration of the
// process that was killed.
func (l *life) givesUp(attempts int, took time.Duration) bool {
	if l.reopen {
		return took >= l.pool.opts.EndpointGrace
	}
	return attempts == maxAttempts
}

// attempt asks the driver for a tunnel when it is its turn, and tells when it
// did.
func (l *life) attempt(ctx context.Context) (began time.Time, err error) {
	p, m := l.pool, l.member
	if err := l.takeTurn(ctx); err != nil {
		return began, err
	}
	defer p.change(func(*state, time.Time) { m.attempting = false })
	if l.server == nil {
		if l.server, err = p.opts.Listen(ctx, m.id); err != nil {
			return began, err
		}
		l.serve(ctx)
		p.change(func(*state, time.Time) { m.server = l.server })
	}
	began = time.Now()
	opening, cancel := context.WithTimeout(ctx, p.opts.OpenTimeout)
	defer cancel()
	l.tunnel, err = p.opts.Driver.Open(opening, l.local())
	if err == nil {
		return began, nil
	}
	l.tunnel = nil
	outcome := outcomeOf(err)
	if ctx.Err() != nil {
		outcome = OutcomeCancelled
	}
	l.attempted(outcome, began)
	if limit, ok := errors.AsType[*RateLimitError](err); ok && p.opts.Pacer != nil {
		err = errors.Join(err, p.opts.Pacer.Pause(ctx, time.Now().Add(limit.RetryAfter)))
	}
	return began, err
}

func (l *life) local() Local {
	local := Local{Server: l.member.id, Serve: l.server.Serve, Resume: l.member.resume}
	if l.server.listener != nil {
		local.Addr = l.server.Addr().String()
	}
	return local
}

// takeTurn waits until the driver may be asked. From then on the opening is not
// given up just because nobody waits for it.
func (l *life) takeTurn(ctx context.Context) error {
	if pacer := l.pool.opts.Pacer; pacer != nil {
		waited, err := pacer.Wait(ctx)
		if err != nil {
			return err
		}
		if l.pool.opts.Observer.Paced != nil {
			l.pool.opts.Observer.Paced(waited)
		}
	}
	l.pool.change(func(*state, time.Time) { l.member.attempting = true })
	return ctx.Err()
}

// enter makes the server placeable once its public URL leads to it.
func (l *life) enter(ctx context.Context, began time.Time, attempts int) error {
	p, m := l.pool, l.member
	url := strings.TrimRight(l.tunnel.URL(), "/")
	if l.reopen && m.url != url {
		return &OpenError{Server: m.id, Attempts: attempts, Err: fmt.Errorf("came back as %s, not as %s", url, m.url)}
	}
	p.change(func(*state, time.Time) {
		m.state, m.url, m.resume, m.held = ServerProbing, url, l.tunnel.Resume(), true
		m.lastErr = nil
	})
	if err := l.awaitReady(ctx, url); err != nil {
		l.attempted(OutcomeNotReady, began)
		return &OpenError{Server: m.id, Attempts: attempts, Err: err}
	}
	l.attempted(OutcomeOK, began)
	if p.opts.Opened != nil {
		p.opts.Opened(Record{Server: m.id, URL: url, Resume: m.resume})
	}
	p.change(func(s *state, now time.Time) { s.ready(m, now) })
	p.opts.Logger.Info().Str("server", m.id).Str("url", url).Float64("seconds", time.Since(began).Seconds()).Msg("server ready")
	return nil
}

// openFailed answers those who waited for the member, which goes. The URL of one
// that was to be reopened is lost instead.
func (l *life) openFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it was not needed any more
	}
	if l.reopen {
		l.lost(err)
		return
	}
	l.pool.opts.Logger.Warn().Err(err).Str("server", l.member.id).Msg("opening a server failed")
	l.pool.change(func(s *state, now time.Time) { s.openFailed(l.member, err, now) })
}

func (l *life) attempted(outcome Outcome, began time.Time) {
	if l.pool.opts.Observer.Attempted != nil {
		l.pool.opts.Observer.Attempted(outcome, time.Since(began))
	}
}

// final says that trying again is pointless.
func final(err error) bool {
	switch outcomeOf(err) {
	case OutcomeAuth, OutcomeQuota, OutcomeConfig:
		return true
	default:
		return false
	}
}

func outcomeOf(err error) Outcome {
	if _, ok := errors.AsType[*AuthError](err); ok {
		return OutcomeAuth
	}
	if _, ok := errors.AsType[*QuotaError](err); ok {
		return OutcomeQuota
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return OutcomeConfig
	}
	if _, ok := errors.AsType[*RateLimitError](err); ok {
		return OutcomeRateLimited
	}
	return OutcomeTransient
}

// afterAttempt is how long to wait before the next one. What a provider wants
// is the pacer's to observe, if there is one, because others have to as well.
func (l *life) afterAttempt(attempt int, err error) time.Duration {
	wait := min(firstPause<<min(attempt-1, 10), longestPause)
	wait += rand.N(wait / 2)
	if limit, ok := errors.AsType[*RateLimitError](err); ok && l.pool.opts.Pacer == nil {
		wait = max(wait, limit.RetryAfter)
	}
	return wait
}
