package frp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is how many bytes wait in the kernel unsent. All streams of a
// tunnel go through one socket, so that an event of one waits for what others
// have queued before it; without a bound that is megabytes on a slow link.
const maxUnsent = 16 << 10

// shortQueue bounds the kernel's queue of the socket. Where that fails the
// tunnel works, with later events beside a large answer.
func shortQueue(_, _ string, socket syscall.RawConn) error {
	return socket.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
