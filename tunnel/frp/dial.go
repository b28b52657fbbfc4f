package frp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/muxproxy/muxproxy/tunnel/socket"
)

// connection is a connection to the server, encrypted or not. It can be closed
// at any time without waiting for the peer: TLS' goodbye could.
type connection struct {
	net.Conn
	socket *net.TCPConn
}

// Close closes the socket.
func (c *connection) Close() error { return c.socket.Close() }

// CloseWrite lets the peer read what was written and then come to the end.
func (c *connection) CloseWrite() error { return c.socket.CloseWrite() }

// dial connects to the server.
func dial(ctx context.Context, o *ClientOptions) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, &silenceError{to: "connection"})
	defer cancel()
	dialer := &net.Dialer{Control: socket.ShortQueue}
	conn, err := dialer.DialContext(ctx, "tcp", o.ServerAddr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", o.ServerAddr, err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("dialed something other than TCP")
	}
	if o.TLS == nil {
		return &connection{Conn: conn, socket: tcp}, nil
	}
	encrypted := tls.Client(conn, o.TLS)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("shake hands with %s: %w", o.ServerAddr, err)
	}
	return &connection{Conn: encrypted, socket: tcp}, nil
}
