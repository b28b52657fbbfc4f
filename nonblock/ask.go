package nonblock

import (
	"errors"
	"net"
)

// ErrStale is what asking gives on a connection that the peer has closed, or on
// which it has said something that it was not asked for.
var ErrStale = errors.New("the connection is not waiting for a request")

// A Request is told when all of it has been written.
type Request interface {
	// Written must not wait. The memory of the request is not touched any more.
	Written()
}

// Ask writes a request, which is b, to a connection that nobody reads or writes
// and on which nothing is expected until then, and returns once the answer may be
// read. An error belongs to the writing and comes with the number of bytes that
// were written, none if it is ErrStale; what goes wrong while the answer is waited
// for shows in the Read that follows, as does a deadline for it.
//
// A Write and a Read do the same with a system call more: the read that finds
// nothing yet.
func Ask(c net.Conn, b []byte, r Request) (n int, err error) {
	if q, ok := c.(asker); ok {
		n, err = q.ask(b, r)
	} else if !Quiet(c) {
		return 0, ErrStale
	}
	if n == len(b) || err != nil {
		return n, err
	}
	k, err := c.Write(b[n:])
	if err == nil {
		r.Written()
	}
	return n + k, err
}

// An asker writes and waits in one go.
type asker interface {
	// ask is Ask, but may return before all has been written.
	ask(b []byte, r Request) (n int, err error)
}
