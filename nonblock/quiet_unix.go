//go:build unix

package nonblock

import (
	"errors"
	"net"
	"syscall"
)

// Quiet reports whether nothing can be read of a connection that nobody reads: its
// peer has neither closed it nor sent anything. Of what is no socket that cannot be
// known, and it is true.
func Quiet(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT) //nolint:gosec // a descriptor
		quiet = n <= 0 && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR))
		return true
	})
	return err == nil && quiet
}
