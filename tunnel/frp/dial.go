package frp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// dial connects to the server. What comes back can be closed at any time
// without waiting for the peer.
func dial(ctx context.Context, o *ClientOptions) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, &silenceError{to: "connection"})
	defer cancel()
	dialer := &net.Dialer{Control: shortQueue}
	conn, err := dialer.DialContext(ctx, "tcp", o.ServerAddr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", o.ServerAddr, err)
	}
	if o.TLS == nil {
		return conn, nil
	}
	encrypted := tls.Client(conn, o.TLS)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("shake hands with %s: %w", o.ServerAddr, err)
	}
	return &abruptConn{Conn: encrypted, socket: conn}, nil
}

// abruptConn is a TLS connection whose Close does not say goodbye, which could
// wait for a hung peer.
type abruptConn struct {
	net.Conn
	socket net.Conn
}

// Close closes the socket.
func (c *abruptConn) Close() error { return c.socket.Close() }
