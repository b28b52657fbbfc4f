package scripted

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes one direction of a connection holds before its writer waits.
const window = 256 << 10

// memConn is one end of an in-memory connection. SetLinger and Close are for one goroutine; the rest is for any.
type memConn struct {
	in, out *stream
	linger  bool
}

func newConnPair() (a, b *memConn) {
	x, y := newStream(), newStream()
	return &memConn{in: x, out: y, linger: true}, &memConn{in: y, out: x, linger: true}
}

func (c *memConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close ends both directions: the other side reads what is buffered and then EOF, or after SetLinger(0) gets a reset.
func (c *memConn) Close() error {
	reason := io.EOF
	if !c.linger {
		reason = syscall.ECONNRESET
	}
	c.out.end(reason)
	c.in.end(net.ErrClosed)
	return nil
}

// SetLinger with 0 makes Close a reset, as for a [net.TCPConn].
func (c *memConn) SetLinger(sec int) error {
	c.linger = sec != 0
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return memoryAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return memoryAddr{} }

func (c *memConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.readBy.set(c.in, t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.writeBy.set(c.out, t)
	return nil
}

// stream is one direction of a connection.
type stream struct {
	mu              sync.Mutex // guards what follows
	moved           *sync.Cond // something a reader or writer may wait for has changed
	buf             []byte
	ended           error // nil while open; what readers get once buf is empty
	readBy, writeBy deadline
}

func newStream() *stream {
	s := &stream{}
	s.moved = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf) == 0 || s.readBy.over {
		switch {
		case s.readBy.over:
			return 0, os.ErrDeadlineExceeded
		case errors.Is(s.ended, io.EOF):
			return 0, io.EOF
		case s.ended != nil:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: s.ended}
		case len(p) == 0:
			return 0, nil
		}
		s.moved.Wait()
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	s.moved.Broadcast()
	return n, nil
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writeBy.over:
			return n, os.ErrDeadlineExceeded
		case s.ended != nil:
			return n, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case n == len(p):
			return n, nil
		}
		if room := window - len(s.buf); room > 0 {
			k := min(room, len(p)-n)
			s.buf = append(s.buf, p[n:n+k]...)
			n += k
			s.moved.Broadcast()
			continue
		}
		s.moved.Wait()
	}
}

// end closes the stream for both sides; the first reason is kept. What is buffered is still read, after a reset too as on
// Linux, unless the reader itself has closed.
func (s *stream) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = reason
	}
	if errors.Is(reason, net.ErrClosed) {
		s.buf = nil
	}
	s.readBy.stop()
	s.writeBy.stop()
	s.moved.Broadcast()
}

// deadline is the time after which one side's calls on a stream fail. The stream's lock guards it.
type deadline struct {
	over  bool
	timer *time.Timer
}

// set replaces the deadline; the zero time is none.
func (d *deadline) set(s *stream, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.stop()
	d.over = false
	if t.IsZero() || s.ended != nil {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.over = true
		s.moved.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer { // not replaced meanwhile
			d.over = true
			s.moved.Broadcast()
		}
	})
	d.timer = timer
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
