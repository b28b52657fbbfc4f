package ssh

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is how many bytes wait in the kernel unsent. All connections
// through a tunnel share one socket, and an event of one waits for what the
// others have put before it; without a bound that is megabytes on a slow link.
const maxUnsent = 16 << 10

// control bounds what waits in the socket. Where that fails the tunnel works,
// with later events beside a large answer.
func control(_ context.Context, _, _ string, socket syscall.RawConn) error {
	return socket.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// acknowledge sends the acknowledgement of what has been read now, and not up
// to 40 ms later. It is only about time, so that its failing does not matter.
func acknowledge(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		if socket, err := tcp.SyscallConn(); err == nil {
			_ = socket.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
			})
		}
	}
}
