//go:build !race

package nonblock

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An asking is a request on its way.
type asking struct {
	step    func(fd uintptr) (done bool) // made a value once
	b       []byte
	n       int // bytes of b that are written
	request Request
	err     error
}

// ask implements asker. Looking, writing and waiting are one read to the poller:
// what it is told from then on is not lost, as it would be if it began to listen
// only after the request had been written.
func (c *conn) ask(b []byte, r Request) (int, error) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	a := &c.asking
	if a.step == nil {
		a.step = a.write
	}
	a.b, a.n, a.request, a.err = b, 0, r, nil
	err := c.raw.Read(a.step)
	if a.err != nil {
		err = a.err
	} else if a.n == len(b) {
		err = nil // it was in waiting
	}
	a.b, a.request = nil, nil
	return a.n, c.as("write", err)
}

// write is done when there is nothing to wait for, and when it is called again.
func (a *asking) write(fd uintptr) bool {
	if a.request == nil {
		return true
	}
	if !quiet(fd) {
		a.err = ErrStale
		return true
	}
	for a.n < len(a.b) {
		n, errno := call(syscall.SYS_WRITE, fd, a.b[a.n:])
		switch errno {
		case 0:
			a.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			a.err = os.NewSyscallError("write", errno)
			return true
		}
	}
	a.request.Written()
	a.b, a.request = nil, nil
	return false
}

// quiet reports whether a read would find nothing.
func quiet(fd uintptr) bool {
	var b [1]byte
	_, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1,
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == syscall.EAGAIN || errno == syscall.EINTR
}
