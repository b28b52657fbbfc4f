package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

const (
	// A lost connection is tried again after a random time of at most
	// firstBackoff, and twice as long after each failure.
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

var _ tunnel.Tunnel = (*connection)(nil)

// connection is a tunnel: SSH connections one after the other, all with the
// same port at the far end. It is up while there is one, and done when the port
// could not be had again or after Close, at which run returns.
type connection struct {
	tunnel.Condition

	driver *Driver
	server string
	serve  func(net.Conn)
	port   int
	url    string
	cancel context.CancelFunc
}

// URL is the public base URL.
func (c *connection) URL() string { return c.url }

// Resume is the port.
func (c *connection) Resume() string { return strconv.Itoa(c.port) }

// Close ends the connection, upon which the server gives up the port. What has
// been written to connections that came through the tunnel gets two seconds to
// leave.
func (c *connection) Close(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close tunnel: %w", context.Cause(ctx))
	}
}

// run keeps the tunnel up, beginning with s, until ctx is done or the port is
// lost.
func (c *connection) run(ctx context.Context, s *session) {
	defer c.cancel()
	c.End(c.keep(ctx, s))
}

func (c *connection) keep(ctx context.Context, s *session) error {
	log := c.driver.o.Logger.With().Str("server", c.server).Str("url", c.url).Logger()
	for {
		err := s.run(ctx, c.serve)
		if ctx.Err() != nil {
			return tunnel.ErrClosed
		}
		lost := time.Now()
		c.Become(tunnel.Reconnecting)
		log.Warn().Err(err).Msg("ssh connection lost")
		if s, err = c.reconnect(ctx); err != nil {
			return err
		}
		c.Become(tunnel.Up)
		log.Info().Float64("down_seconds", time.Since(lost).Seconds()).Msg("ssh connection made again")
	}
}

// reconnect gets the same port again. Its error is what the tunnel is done
// with. The port is still taken as long as the server has not noticed that the
// last connection broke, so a refusal gets time of its own.
func (c *connection) reconnect(ctx context.Context) (*session, error) {
	o := &c.driver.o
	deadline := time.Now().Add(o.ReconnectTimeout)
	refused := false
	for longest := firstBackoff; ; longest = min(2*longest, maxBackoff) {
		if tunnel.Pause(ctx, rand.N(longest)) != nil {
			return nil, tunnel.ErrClosed
		}
		s, err := c.driver.connect(ctx, c.port)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, tunnel.ErrClosed
		}
		o.Logger.Debug().Err(err).Str("server", c.server).Msg("ssh connection still lost")
		if _, denied := errors.AsType[*deniedError](err); denied && !refused {
			refused = true
			deadline = time.Now().Add(o.ReconnectTimeout)
		}
		if final(err) || time.Now().After(deadline) {
			return nil, &tunnel.LostError{Reason: err.Error()}
		}
	}
}

// final tells whether trying again is pointless.
func final(err error) bool {
	_, auth := errors.AsType[*tunnel.AuthError](err)
	_, config := errors.AsType[*tunnel.ConfigError](err)
	return auth || config
}
