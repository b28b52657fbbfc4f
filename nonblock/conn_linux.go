//go:build !race

package nonblock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// most is how much is moved in this way at once. To copy that takes some ten
// microseconds, for which whoever stops the world has to wait.
const most = 64 << 10

// Conn makes a connection such a one. What is no TCP connection, it gives back.
func Conn(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	q := &conn{TCPConn: tcp, raw: raw}
	q.in.step, q.out.step = q.in.read, q.out.write
	return q
}

// A conn replaces only Read, Write and Close of TCPConn.
type conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out direction
	asking  asking // guarded by in.mu

	leaves  *leaves // where its peer is watched for; nil is nowhere
	number  uint64  // there
	leave   leave
	watched bool
	alone   bool // the last Read was for one byte; whoever reads guards it
	closed  atomic.Bool
}

// A direction is what is being read, or written.
type direction struct {
	step func(fd uintptr) (done bool) // read or write, made a value once

	mu  sync.Mutex // also held while the connection is waited for
	b   []byte
	n   int // bytes of b that are done
	err error
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	if c.leaves != nil && !c.closed.Swap(true) {
		c.leaves.drop(c.number)
		c.leave.happened()
	}
	return c.TCPConn.Close()
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	if c.spared(b) {
		return 0, nil
	}
	if len(b) == 0 || len(b) > most {
		return c.TCPConn.Read(b)
	}
	n, err := c.in.move(b, c.raw.Read)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, c.as("read", err)
}

// spared reports whether a Read is the one that Context makes unnecessary. Another
// for one byte right after it is not: that is somebody who wants it, such as a buffer
// with room for no more, and would get nothing again and again.
func (c *conn) spared(b []byte) bool {
	before := c.alone
	c.alone = len(b) == 1
	return c.watched && c.alone && !before
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if len(b) == 0 || len(b) > most {
		return c.TCPConn.Write(b)
	}
	n, err := c.out.move(b, c.raw.Write)
	return n, c.as("write", err)
}

// as makes of err what package net would have.
func (c *conn) as(op string, err error) error {
	if err == nil {
		return nil
	}
	if waited, ok := errors.AsType[*net.OpError](err); ok {
		waited.Op = op
		return waited
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// move takes steps until they are done; between them wait waits until there is
// something to do, the deadline has passed or the connection is closed.
func (d *direction) move(b []byte, wait func(step func(uintptr) bool) error) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.b, d.n, d.err = b, 0, nil
	err := wait(d.step)
	d.b = nil
	if err == nil {
		err = d.err
	}
	return d.n, err
}

func (d *direction) read(fd uintptr) bool {
	for {
		n, errno := call(syscall.SYS_READ, fd, d.b)
		switch errno {
		case 0:
			d.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			d.err = os.NewSyscallError("read", errno)
		}
		return true
	}
}

func (d *direction) write(fd uintptr) bool {
	for d.n < len(d.b) {
		n, errno := call(syscall.SYS_WRITE, fd, d.b[d.n:])
		switch errno {
		case 0:
			d.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			d.err = os.NewSyscallError("write", errno)
			return true
		}
	}
	return true
}

// call reads into b, or writes it. It must not be empty.
func call(trap, fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno //nolint:gosec // n is at most len(b) where errno is 0
}
