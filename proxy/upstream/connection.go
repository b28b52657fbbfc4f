package upstream

import (
	"net"
	"time"
)

// connection is a connection to a replica. One call at a time has it.
type connection struct {
	net.Conn
	abort     func() // closes it
	used      bool   // by an earlier call
	idleSince time.Time
}

func newConnection(c net.Conn) *connection {
	return &connection{Conn: c, abort: func() { _ = c.Close() }}
}

// awaitRefusal gives an answer that the replica may have sent before it stopped
// taking the request a moment to be read.
func (c *connection) awaitRefusal() {
	// If it fails the connection is closed, and reading ends at once.
	_ = c.SetReadDeadline(time.Now().Add(refusalGrace))
}
