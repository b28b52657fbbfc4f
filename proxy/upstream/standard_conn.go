package upstream

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// standardConn counts what was written, which tells a call that may be sent again from
// one that may have begun.
type standardConn struct {
	net.Conn
	transport *standard
	written   atomic.Int64
	closed    atomic.Bool
	roomless  atomic.Bool // it takes no room of the transport's

	mu     sync.Mutex // guards what follows, which is of HTTP/2
	calls  int        // that share it
	unused *time.Timer
}

// share notes that a call has been given the connection, which speaks HTTP/2. That
// takes no room from then on: a replica may be going away, or refuse more calls, and
// leave it open, and nobody could wait for its close.
func (c *standardConn) share() {
	c.giveRoom()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.unused != nil {
		c.unused.Stop()
	}
}

// unshare notes that a call has left the connection. net/http closes it when it is
// idle, but not if it has once given it to a call at the moment when the replica said
// that it goes away. No call gets it any more when it should have been closed for long.
func (c *standardConn) unshare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls > 0 || c.closed.Load() {
		return
	}
	if c.unused == nil {
		c.unused = time.AfterFunc(2*idleTimeout, c.closeUnused)
		return
	}
	c.unused.Reset(2 * idleTimeout)
}

func (c *standardConn) closeUnused() {
	c.mu.Lock()
	unused := c.calls == 0
	c.mu.Unlock()
	if unused {
		_ = c.Close()
	}
}

func (c *standardConn) giveRoom() {
	if !c.roomless.Swap(true) {
		c.transport.disconnected()
	}
}

// Write implements net.Conn.
func (c *standardConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// ReadFrom implements io.ReaderFrom. Bodies are in memory, but net/http hides that
// from the connection, and would copy them through a buffer made for each call.
func (c *standardConn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if body, ok := limited.R.(io.WriterTo); ok { // exactly as long as the limit
			n, err := body.WriteTo(c)
			limited.N -= n
			return n, err
		}
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

// Close implements net.Conn.
func (c *standardConn) Close() error {
	if !c.closed.Swap(true) {
		defer c.giveRoom()
	}
	return c.Conn.Close()
}
