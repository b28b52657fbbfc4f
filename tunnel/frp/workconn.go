package frp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// maxWrite is how much of one stream is written at a time. yamux serves its
// streams in turn, a write each, so that this is how long one waits for
// another.
const maxWrite = 16 << 10

// errVisitorLeft ends writes to a visitor who is no longer there.
var errVisitorLeft = errors.New("visitor left")

// workConn is a visitor's connection.
//
// frps closes it as a whole when the visitor closes his, in one direction or
// both, and reads nothing any more. yamux would go on until frps' window is full
// of what nobody reads, 6 MiB, and then wait.
type workConn struct {
	net.Conn
	visitor net.Addr
	left    atomic.Bool
}

// newWorkConnection is the stream with the visitor's address, if the server
// gave a usable one.
func newWorkConnection(stream net.Conn, start startWorkConn) *workConn {
	c := &workConn{Conn: stream, visitor: stream.RemoteAddr()}
	if addr, err := netip.ParseAddr(start.SrcAddr); err == nil && start.SrcPort != 0 {
		c.visitor = net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, start.SrcPort))
	}
	return c
}

// RemoteAddr is the visitor's address, or else the server's. A server may use
// one connection of an HTTP proxy for many visitors: it is the first one's.
func (c *workConn) RemoteAddr() net.Addr { return c.visitor }

// Read ends writes, too, when it comes to the end.
func (c *workConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) && !c.left.Swap(true) {
		_ = c.Conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return n, err
}

// Write lets other streams take their turn after every piece.
func (c *workConn) Write(p []byte) (int, error) {
	written := 0
	for {
		if c.left.Load() {
			return written, errVisitorLeft
		}
		piece := p[written:min(written+maxWrite, len(p))]
		n, err := c.Conn.Write(piece)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// SetDeadline sets both.
func (c *workConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline has no effect once the visitor has left.
func (c *workConn) SetWriteDeadline(t time.Time) error {
	err := c.Conn.SetWriteDeadline(t)
	if c.left.Load() {
		err = c.Conn.SetWriteDeadline(time.Unix(1, 0))
	}
	return err
}
