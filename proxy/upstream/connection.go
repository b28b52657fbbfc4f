package upstream

import (
	"net"
	"syscall"
	"time"
)

// connection is a connection to a replica. One call at a time has it.
type connection struct {
	net.Conn
	abort     func() // closes it
	used      bool   // by an earlier call
	idleSince time.Time

	raw    syscall.RawConn       // nil when it is no socket
	look   func(fd uintptr) bool // sets silent
	silent bool                  // open, and nothing has come
}

func newConnection(c net.Conn) *connection {
	conn := &connection{Conn: c}
	conn.abort = func() { _ = c.Close() }
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			conn.raw = raw
			conn.look = conn.peek
		}
	}
	return conn
}

// quiet reports whether the idle connection can be used: the replica has neither
// closed it nor sent anything. Of what is no socket that cannot be known.
func (c *connection) quiet() bool {
	if c.raw == nil {
		return true
	}
	c.silent = false
	return c.raw.Read(c.look) == nil && c.silent
}

// awaitRefusal gives an answer that the replica may have sent before it stopped
// taking the request a moment to be read.
func (c *connection) awaitRefusal() {
	// If it fails the connection is closed, and reading ends at once.
	_ = c.SetReadDeadline(time.Now().Add(refusalGrace))
}
