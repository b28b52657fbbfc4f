package socket_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muxproxy/muxproxy/tunnel/socket"
)

func TestLittleWaitsUnsentInTheKernel(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialer := net.Dialer{Control: socket.ShortQueue}
	conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		got, optErr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
	}); err != nil {
		t.Fatal(err)
	}
	if got != socket.MaxUnsent || optErr != nil {
		t.Errorf("got a bound of %d, %v; want %d", got, optErr, socket.MaxUnsent)
	}
}
