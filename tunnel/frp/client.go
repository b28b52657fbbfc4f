package frp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel"
)

// The proxy types that the client registers.
const (
	TypeHTTP = "http"
	TypeTCP  = "tcp"
)

// The defaults of [ClientOptions].
const (
	defaultKeepAlive = 10 * time.Second
	defaultPing      = 30 * time.Second
	defaultTimeout   = 10 * time.Second
	// A frps of the usual settings drops the registration of a client that
	// vanished silently after 40 s.
	defaultPatience = 60 * time.Second
)

// Proxy is what a tunnel registers at the server.
type Proxy struct {
	// Name is the proxy's name, unique at the server; on the wire it follows the
	// user and a dot, if there is a user, as frpc writes it.
	Name string
	// Type is TypeHTTP or TypeTCP.
	Type string
	// Subdomain is the first label of an HTTP proxy's host.
	Subdomain string
	// RemotePort is a TCP proxy's port at the server; with 0 the server picks
	// one, which the tunnel then keeps.
	RemotePort int
}

// ClientOptions describe one tunnel.
type ClientOptions struct {
	// ServerAddr is the server's host:port.
	ServerAddr string
	// Token, User and Metas are what the client logs in with.
	Token string
	User  string
	Metas map[string]string
	// Proxy is what it registers.
	Proxy Proxy
	// URL is the tunnel's public URL; "{port}" in it is replaced by the port of
	// a TCP proxy.
	URL string
	// Resumable has Tunnel.Resume give the URL; otherwise it gives "".
	Resumable bool
	// TLS encrypts the connection; nil is plain text.
	TLS *tls.Config
	// Logins bounds how many clients log in at the same time; nil does not.
	Logins *Logins
	// Refused is asked what to do when the server refuses a login of a tunnel
	// that was up: with nil the client goes on trying, an error is what the
	// tunnel is done with. A nil Refused means that every refusal is final.
	Refused func(ctx context.Context, err error) error
	// KeepAlive is how often a silent connection is tried; 10 s when zero.
	KeepAlive time.Duration
	// Ping is how often the server is told that the client is alive, which it
	// may insist on; 30 s when zero, never when negative.
	Ping time.Duration
	// Timeout is how long the server may take to accept a connection, to shake
	// hands, to answer a login, a registration or a keepalive; 10 s when zero.
	Timeout time.Duration
	// Patience is how long a name or port that is still taken is asked for, and
	// then the tunnel is lost; 60 s when zero.
	Patience time.Duration
	// Logger takes connections lost and found; the zero value is silent.
	Logger zerolog.Logger
}

// withDefaults is a copy with every default in its place.
func (o ClientOptions) withDefaults() ClientOptions {
	o.KeepAlive = cmp.Or(o.KeepAlive, defaultKeepAlive)
	o.Ping = cmp.Or(o.Ping, defaultPing)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	if o.User != "" {
		o.Proxy.Name = o.User + "." + o.Proxy.Name
	}
	return o
}

// Connect logs in and registers the proxy once, and returns a tunnel that looks
// after its connection by itself. Connections through it are given to serve,
// which must not block and owns them; their remote address is the visitor's, as
// far as the server tells. ctx bounds the attempt alone.
//
// It fails with one of the errors of [tunnel.Driver].
func Connect(ctx context.Context, o ClientOptions, serve func(net.Conn)) (tunnel.Tunnel, error) {
	o = o.withDefaults()
	c := &client{
		options: o,
		proxy:   o.Proxy,
		url:     o.URL,
		serve:   serve,
	}
	s, remote, err := connect(ctx, &c.options, "", c.proxy)
	if err != nil {
		return nil, classified(err)
	}
	if o.Proxy.Type == TypeTCP {
		if err := c.keepPort(remote); err != nil {
			s.end(err)
			return nil, &tunnel.TransientError{Err: err}
		}
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	go c.run(life, s)
	return c, nil
}

// classified is the failure of an attempt as the pool is told of it.
func classified(err error) error {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.classified()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &tunnel.ConfigError{Err: err}
	}
	return &tunnel.TransientError{Err: err}
}

// keepPort takes the port out of what the server says of a TCP proxy, ":20001".
func (c *client) keepPort(remote string) error {
	_, text, err := net.SplitHostPort(remote)
	if err != nil {
		return fmt.Errorf("read the proxy's address: %w", err)
	}
	port, err := parsePort(text)
	if err != nil {
		return fmt.Errorf("read the proxy's address: %w", err)
	}
	c.proxy.RemotePort = port
	c.url = strings.ReplaceAll(c.url, portVariable, strconv.Itoa(port))
	return nil
}
