package frp

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

const (
	// After a lost connection the client waits a random time of at most
	// firstBackoff, and twice as long after each further failure.
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 20 * time.Second
	// While its name is taken the client asks again after at least minRetry and
	// at most maxRetry.
	minRetry = time.Second
	maxRetry = 5 * time.Second
	// A connection that was up for less counts as one more failure.
	steady = 10 * time.Second
)

// keep serves session after session until ctx is done, or until the URL is lost
// for good, and says which.
func (c *client) keep(ctx context.Context, s *session) error {
	failures := 0
	for {
		began := time.Now()
		err := s.run(ctx, c.serve)
		if ctx.Err() != nil {
			return tunnel.ErrClosed
		}
		lost := time.Now()
		c.Become(tunnel.Reconnecting)
		c.options.Logger.Warn().Err(err).Str("url", c.url).Msg("tunnel disconnected")
		if lost.Sub(began) >= steady {
			failures = 0
		}
		if s, err = c.reconnect(ctx, s.runID, &failures); err != nil {
			return err
		}
		c.Become(tunnel.Up)
		c.options.Logger.Info().Str("url", c.url).Float64("down_seconds", time.Since(lost).Seconds()).Msg("tunnel reconnected")
	}
}

// reconnect registers the proxy again. Its error is what the tunnel is done
// with.
//
// With the run id of the lost session the server knows the client for the same
// and gives up the old registration at once. A server that cannot close the old
// session, because the client vanished from it without a word, never answers
// such a login, and every further one makes it worse; so a run id is not used
// again after that. Without it the name counts as taken until the server has
// noticed by itself.
func (c *client) reconnect(ctx context.Context, runID string, failures *int) (*session, error) {
	var taken time.Time // since when the server says that the proxy exists
	wait := backoff(*failures)
	for {
		if tunnel.Pause(ctx, wait) != nil {
			return nil, tunnel.ErrClosed
		}
		*failures++
		wait = backoff(*failures)
		s, _, err := connect(ctx, &c.options, runID, c.proxy)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, tunnel.ErrClosed
		}
		c.options.Logger.Debug().Err(err).Str("url", c.url).Msg("tunnel still disconnected")
		if silence, ok := errors.AsType[*silenceError](err); ok && silence.to == stepLogin {
			runID = ""
		}
		refused, ok := errors.AsType[*refusal](err)
		if !ok || refused.passes() {
			continue
		}
		if lost := c.lost(ctx, refused, &taken); lost != nil {
			return nil, lost
		}
		if !refused.login {
			wait = minRetry + rand.N(maxRetry-minRetry)
		}
	}
}

// lost judges a refusal: nil means to go on trying.
func (c *client) lost(ctx context.Context, refused *refusal, taken *time.Time) error {
	if refused.login {
		if c.options.Refused == nil {
			return &tunnel.LostError{Reason: refused.Error()}
		}
		return c.options.Refused(ctx, refused.classified())
	}
	if taken.IsZero() {
		*taken = time.Now()
	}
	_, transient := errors.AsType[*tunnel.TransientError](refused.classified())
	if transient && time.Since(*taken) < c.options.Patience {
		return nil
	}
	return &tunnel.LostError{Reason: refused.Error()}
}

// backoff is a random wait after so many failures.
func backoff(failures int) time.Duration {
	longest := maxBackoff
	if failures < 7 { // 0.2 s · 2⁷ is over the longest
		longest = firstBackoff << failures
	}
	return rand.N(longest)
}
