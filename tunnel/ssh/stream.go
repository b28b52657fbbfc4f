package ssh

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// stream is a connection that came through the tunnel, as the server sees it. A
// channel of SSH knows no deadlines, which an HTTP server cannot do without, so
// that there is a pipe in front of either direction.
type stream struct {
	in, out        net.Conn // the server reads and writes these
	fromFar, toFar net.Conn // their other ends
	remote         net.Addr
}

func newStream(request ssh.NewChannel) *stream {
	s := &stream{remote: origin(request.ExtraData())}
	s.fromFar, s.in = net.Pipe()
	s.toFar, s.out = net.Pipe()
	return s
}

// origin is where the connection came from, as the SSH server tells it.
func origin(extra []byte) net.Addr {
	var forwarded struct {
		Addr       string
		Port       uint32
		OriginAddr string
		OriginPort uint32
	}
	if ssh.Unmarshal(extra, &forwarded) == nil {
		if ip, err := netip.ParseAddr(forwarded.OriginAddr); err == nil {
			return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip.Unmap(), uint16(forwarded.OriginPort)))
		}
	}
	return &net.TCPAddr{}
}

// carry accepts the channel, hands the connection over and copies until both
// directions have ended. Without anybody to hand it to it is refused.
func (s *stream) carry(request ssh.NewChannel, serve func(net.Conn)) {
	if serve == nil {
		_ = request.Reject(ssh.ConnectionFailed, "the tunnel is closing")
		return
	}
	channel, requests, err := request.Accept()
	if err != nil {
		_ = s.Close()
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() { ssh.DiscardRequests(requests) })
	copying.Go(func() {
		_, _ = io.Copy(s.fromFar, channel)
		_ = s.fromFar.Close() // the end of what the client sends, and not of what it gets
	})
	serve(s)
	_, _ = io.Copy(channel, s.toFar)
	_ = s.Close()
	_ = channel.Close()
	copying.Wait() // until the far end has sent all and closed it too
}

// Read reads what the client sends.
func (s *stream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write sends to the client.
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close ends both directions. What has been written still leaves.
func (s *stream) Close() error {
	_ = s.in.Close()
	return s.out.Close()
}

// LocalAddr is no address that could be dialled.
func (s *stream) LocalAddr() net.Addr { return s.out.LocalAddr() }

// RemoteAddr is the client, if the SSH server knows it.
func (s *stream) RemoteAddr() net.Addr { return s.remote }

// SetDeadline bounds reads and writes.
func (s *stream) SetDeadline(t time.Time) error {
	_ = s.in.SetReadDeadline(t)
	return s.out.SetWriteDeadline(t)
}

// SetReadDeadline bounds reads.
func (s *stream) SetReadDeadline(t time.Time) error { return s.in.SetReadDeadline(t) }

// SetWriteDeadline bounds writes.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.out.SetWriteDeadline(t) }
