package frp

import (
	"context"
	"net"
	"sync"

	"github.com/muxproxy/muxproxy/tunnel"
)

// client is one tunnel. It is safe for concurrent use.
type client struct {
	options ClientOptions
	proxy   Proxy // with the port that the server gave
	url     string
	serve   func(net.Conn)
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has returned

	mu      sync.Mutex
	state   tunnel.State
	changed chan struct{}
	err     error
}

// run keeps the tunnel up until ctx is done or its URL is lost.
func (c *client) run(ctx context.Context, s *session) {
	defer c.cancel()
	err := c.keep(ctx, s)
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.done)
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

// State says whether the proxy is registered.
func (c *client) State() tunnel.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Changed is closed at the next change of State.
func (c *client) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Done is closed when the URL is lost, or after Close.
func (c *client) Done() <-chan struct{} { return c.done }

// Err says why Done is closed.
func (c *client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, at which the server drops the registration.
func (c *client) Close(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *client) become(state tunnel.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
	close(c.changed)
	c.changed = make(chan struct{})
}
