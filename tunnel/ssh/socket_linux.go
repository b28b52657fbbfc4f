package ssh

import (
	"net"

	"golang.org/x/sys/unix"
)

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
