package frp_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a relay in front of a server, which can lose a connection without
// either side being told.
type link struct {
	listener net.Listener
	target   string
	pace     time.Duration // between reads

	mu    sync.Mutex
	conns []net.Conn // of both sides
	cut   []net.Conn // those that are never read again
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	return newSlowLink(t, target, 0)
}

// newSlowLink waits before each read of 32 KiB.
func newSlowLink(t *testing.T, target string, pace time.Duration) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: target, pace: pace}
	var relays sync.WaitGroup
	relays.Go(func() { l.accept(&relays) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.mu.Lock()
		for _, conn := range l.cut {
			_ = conn.Close()
		}
		l.mu.Unlock()
		relays.Wait()
	})
	return l
}

func (l *link) Addr() string { return l.listener.Addr().String() }

// Cut has whatever is under way on the present connections vanish. New ones
// pass.
func (l *link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = append(l.cut, l.conns...)
	l.conns = nil
}

func (l *link) accept(relays *sync.WaitGroup) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		relays.Go(func() { l.relay(near, far) })
		relays.Go(func() { l.relay(far, near) })
	}
}

// relay copies until the end of the connection, which it passes on unless it
// was cut.
func (l *link) relay(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		time.Sleep(l.pace)
		n, err := from.Read(buffer)
		l.mu.Lock()
		cut := true
		for _, conn := range l.conns {
			cut = cut && conn != from
		}
		l.mu.Unlock()
		switch {
		case cut && err == nil:
			continue
		case cut:
			return
		}
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			_ = to.Close()
			return
		}
	}
}
