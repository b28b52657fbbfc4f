//go:build !race

package nonblock

import (
	"net"
	"sync"
)

// Listen makes the connections that l accepts such ones.
func Listen(l net.Listener) net.Listener { return &listener{Listener: l} }

type listener struct {
	net.Listener

	mu     sync.Mutex
	leaves *leaves // of what was accepted; nil before, and when there cannot be one
	closed bool
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c = Conn(c)
	if q, ok := c.(*conn); ok {
		l.watch(q)
	}
	return c, nil
}

// watch lets q know when its peer leaves. Without that, whoever reads is told.
func (l *listener) watch(q *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.leaves == nil {
		l.leaves, _ = watchLeaves() // there may be too many files
	}
	if l.leaves != nil {
		l.leaves.use()
		q.leaves = l.leaves
	}
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.leaves != nil {
		l.leaves.drop(0)
	}
	l.closed = true
	return l.Listener.Close()
}
