package frp

import (
	"net"
	"net/netip"
)

// maxWrite is how much of one stream is written at a time. yamux serves its
// streams in turn, a write each, so that this is how long one waits for
// another.
const maxWrite = 16 << 10

// workConn is a visitor's connection.
type workConn struct {
	net.Conn
	visitor net.Addr
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

// Write lets other streams take their turn after every piece.
func (c *workConn) Write(p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(written+maxWrite, len(p))]
		n, err := c.Conn.Write(piece)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}
