package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
)

// dial makes a connection.
func (s *standard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.connect(ctx, network, addr, nil)
}

// dialTLS makes a connection with its handshake.
func (s *standard) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.connect(ctx, network, addr, s.tlsConfig(addr))
}

// connect waits for room, makes a connection within the budget, and tells the
// replica's health how that went.
func (s *standard) connect(ctx context.Context, network, addr string, config *tls.Config) (net.Conn, error) {
	if t, ok := ctx.Value(routeKey{}).(*route); ok {
		if err := s.awaitRoom(t); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.replica.upstream.options.ConnectTimeout)
	defer cancel()
	c, err := s.open(ctx, network, addr)
	if err == nil && config != nil {
		c, err = handshake(ctx, c, config)
	}
	switch {
	case err == nil:
		s.replica.observe((*health).dialed)
		return c, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	default:
		return nil, s.replica.dialFailed(err)
	}
}

func (s *standard) open(ctx context.Context, network, addr string) (net.Conn, error) {
	o := &s.replica.upstream.options
	c, err := o.Dial(ctx, network, addr)
	if err != nil {
		s.disconnected()
		return nil, err
	}
	if o.Observer.ConnectionOpened != nil {
		o.Observer.ConnectionOpened(s.replica.upstream.name)
	}
	return &standardConn{Conn: c, transport: s}, nil
}

func handshake(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, error) {
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// tlsConfig is that of a connection to addr, which is the replica or an HTTP proxy.
func (s *standard) tlsConfig(addr string) *tls.Config {
	config := s.replica.upstream.options.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	config.ServerName = cmp.Or(config.ServerName, host)
	config.ClientSessionCache = s.replica.sessions
	config.NextProtos = []string{"http/1.1"}
	if addr == s.replica.target.tlsAddr() { // and no proxy, which may have the same name
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return config
}

// checkProxy makes an HTTP proxy's refusal to connect a failed dial.
func (s *standard) checkProxy(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return s.replica.dialFailed(errors.New("proxy answered " + res.Status))
}
