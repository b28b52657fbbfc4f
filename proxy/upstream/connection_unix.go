//go:build unix

package upstream

import (
	"errors"
	"syscall"
)

// peek looks whether a read would find anything, without waiting.
func (c *connection) peek(fd uintptr) bool {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT) //nolint:gosec // a descriptor
	c.silent = n <= 0 && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR))
	return true
}
