package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxUnsent is how many bytes wait in the kernel unsent. All streams of a
// tunnel go through one socket, so that an event of one waits for what others
// have queued before it; without a bound that is megabytes on a slow link.
const MaxUnsent = 16 << 10

// ShortQueue is a [net.Dialer]'s Control that bounds the kernel's queue to
// [MaxUnsent]. Where that fails the tunnel works, with later events beside a
// large answer.
func ShortQueue(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, MaxUnsent)
	})
}
