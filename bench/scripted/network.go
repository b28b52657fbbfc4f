package scripted

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Network is a listener and the only way to dial it, both in memory: for whole-stack tests in a testing/synctest
// bubble, where sockets do not work. Its connections behave as TCP ones do: writes are buffered up to a limit and then
// wait for the reader, deadlines hold, and a close after SetLinger(0) is a reset for the other side.
type Network struct {
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// NewNetwork returns a network that is listening.
func NewNetwork() *Network {
	return &Network{backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
}

// DialContext connects to the listener, whatever the address, in the form of [net/http.Transport.DialContext]. A closed
// network refuses.
func (n *Network) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case <-n.closed:
		return nil, refused()
	default:
	}
	client, server := newConnPair()
	select {
	case n.backlog <- server:
		return client, nil
	case <-n.closed:
		return nil, refused()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept returns the next connection that was dialed.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case <-n.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-n.backlog:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close stops listening and drops connections nobody has accepted. Others live on.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	for {
		select {
		case c := <-n.backlog:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr is a name, not a place.
func (n *Network) Addr() net.Addr { return memoryAddr{} }

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: memoryAddr{}, Err: syscall.ECONNREFUSED}
}

type memoryAddr struct{}

func (memoryAddr) Network() string { return "tcp" }
func (memoryAddr) String() string  { return "scripted.test:80" }
