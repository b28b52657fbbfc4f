package frp

import (
	"context"
	"net"

	"github.com/muxproxy/muxproxy/tunnel"
)

// client is one tunnel: up while the proxy is registered, and done when the URL
// is lost or after Close, at which run returns. It is safe for concurrent use.
type client struct {
	tunnel.Condition

	options ClientOptions
	proxy   Proxy // with the port that the server gave
	url     string
	serve   func(net.Conn)
	cancel  context.CancelFunc
}

// run keeps the tunnel up until ctx is done or its URL is lost.
func (c *client) run(ctx context.Context, s *session) {
	defer c.cancel()
	c.End(c.keep(ctx, s))
}

// URL is the public URL.
func (c *client) URL() string { return c.url }

// Resume is the URL, if the tunnel can come back under it.
func (c *client) Resume() string {
	if c.options.Resumable {
		return c.url
	}
	return ""
}

// Close ends the connection, at which the server drops the registration.
func (c *client) Close(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
