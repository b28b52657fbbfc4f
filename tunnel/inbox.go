package tunnel

import (
	"net"
	"sync"
)

// inbox is a listener for connections that others accepted. Close closes those
// that nobody took, and every later one.
type inbox struct {
	name   inboxAddr
	closed chan struct{}
	some   chan struct{} // capacity 1: there are connections to take

	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func newInbox(server string) *inbox {
	return &inbox{name: inboxAddr(server), closed: make(chan struct{}), some: make(chan struct{}, 1)}
}

func (b *inbox) put(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		_ = conn.Close()
		return
	}
	b.conns = append(b.conns, conn)
	b.signal()
}

// Accept waits for a connection.
func (b *inbox) Accept() (net.Conn, error) {
	for {
		if conn := b.take(); conn != nil {
			return conn, nil
		}
		select {
		case <-b.some:
		case <-b.closed:
			return nil, net.ErrClosed
		}
	}
}

func (b *inbox) take() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.conns) == 0 {
		return nil
	}
	conn := b.conns[0]
	b.conns = b.conns[1:]
	if len(b.conns) > 0 {
		b.signal()
	}
	return conn
}

func (b *inbox) signal() {
	select {
	case b.some <- struct{}{}:
	default:
	}
}

// Close may be called again.
func (b *inbox) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return nil
	}
	b.shut = true
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
	close(b.closed)
	return nil
}

// Addr names the server.
func (b *inbox) Addr() net.Addr { return b.name }

// inboxAddr is the address of connections that came in process.
type inboxAddr string

// Network is "inprocess".
func (inboxAddr) Network() string { return "inprocess" }

// String is the server's name.
func (a inboxAddr) String() string { return string(a) }
