// Package ssh makes servers reachable through an SSH server: each tunnel is one
// connection that asks the server to listen on a port and to forward what
// arrives there, as `ssh -R` does. Connections come out in this process.
//
// The other end is OpenSSH's sshd, or one that behaves like it. For a public
// URL it needs `GatewayPorts clientspecified` in its configuration, or
// something in front of it, which also speaks TLS, that passes requests on to
// the ports. `ClientAliveInterval 15` is advisable: otherwise a connection
// that broke without a word keeps its port for hours.
//
// The window of a channel, 2 MiB in both directions, is fixed by the SSH
// libraries of both ends. The socket of this end is kept from queueing more
// than little, so that the events of one rollout do not wait behind the
// download of another; an upload can put 2 MiB before other requests.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel"
)

// Options describe the SSH server and how to log in there.
type Options struct {
	// Addr is the server, host:port.
	Addr string
	// User is whom to log in as.
	User string
	// PublicURL is the base URL of a tunnel, in which {port} becomes the port
	// that the server listens on: "https://gateway.example:{port}".
	PublicURL string
	// RemoteHost is the address that the server is asked to listen on; empty is
	// "localhost". sshd listens elsewhere only with `GatewayPorts clientspecified`.
	RemoteHost string
	// KeyFile is the only private key to log in with. One with a passphrase must
	// also be in the agent.
	KeyFile string
	// AgentSocket is the socket of an SSH agent, the value of SSH_AUTH_SOCK. Its
	// keys are tried first when there is no KeyFile.
	AgentSocket string
	// Dir is the user's folder for SSH, ~/.ssh. Keys with usual names are tried
	// last when there is no KeyFile.
	Dir string
	// KnownHosts is the file with the server's key; empty is known_hosts in Dir.
	KnownHosts string
	// Keepalive is how long the server may be silent before it is asked for a sign
	// of life; twice that without one ends the connection. Zero is 10 seconds.
	Keepalive time.Duration
	// ConnectTimeout bounds connecting and logging in; zero is 15 seconds.
	ConnectTimeout time.Duration
	// ReconnectTimeout is for how long a lost connection is tried to be made again
	// before the URL counts as lost, and for how long once more when the port is
	// still taken; zero is a minute.
	ReconnectTimeout time.Duration
	// Logger takes what happens to connections; the zero value is silent.
	Logger zerolog.Logger
}

// maxLogins is how many tunnels log in at the same time. sshd drops connections
// when more than ten have not logged in yet.
const maxLogins = 8

// Driver opens tunnels through one SSH server. It is safe for concurrent use.
type Driver struct {
	o      Options
	logins chan struct{} // one for each login that goes on
}

// New checks the options. Keys and known hosts are read at every connection.
func New(o Options) (*Driver, error) {
	if host, _, err := net.SplitHostPort(o.Addr); err != nil || host == "" {
		return nil, &tunnel.ConfigError{Err: fmt.Errorf("address of the SSH server: %q is not host:port", o.Addr)}
	}
	if o.User == "" {
		return nil, &tunnel.ConfigError{Err: errors.New("no user to log in to the SSH server as")}
	}
	if err := checkTemplate(o.PublicURL); err != nil {
		return nil, &tunnel.ConfigError{Err: fmt.Errorf("public URL: %w", err)}
	}
	o.RemoteHost = cmp.Or(o.RemoteHost, "localhost")
	o.Keepalive = cmp.Or(o.Keepalive, 10*time.Second)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 15*time.Second)
	o.ReconnectTimeout = cmp.Or(o.ReconnectTimeout, time.Minute)
	return &Driver{o: o, logins: make(chan struct{}, maxLogins)}, nil
}

// Name is "ssh".
func (d *Driver) Name() string { return "ssh" }

// Open connects, logs in and has the server listen. What an earlier tunnel's
// Resume gave is a port, which the server may still hold for the connection of
// that time: that is a *tunnel.TransientError.
func (d *Driver) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	port := 0
	if l.Resume != "" {
		number, err := strconv.ParseUint(l.Resume, 10, 16)
		if err != nil || number == 0 {
			return nil, &tunnel.ConfigError{Err: fmt.Errorf("resume: %q is no port", l.Resume)}
		}
		port = int(number)
	}
	s, err := d.connect(ctx, port)
	if denied, ok := errors.AsType[*deniedError](err); ok {
		if port == 0 {
			return nil, &tunnel.ConfigError{Err: denied}
		}
		return nil, &tunnel.TransientError{Err: denied}
	}
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &connection{
		driver: d, server: l.Server, serve: l.Serve, port: s.port, cancel: cancel,
		url: publicURL(d.o.PublicURL, s.port),
	}
	go t.run(running, s)
	return t, nil
}

func publicURL(template string, port int) string {
	return strings.TrimRight(strings.ReplaceAll(template, "{port}", strconv.Itoa(port)), "/")
}

func checkTemplate(template string) error {
	u, err := url.Parse(publicURL(template, 1))
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q is no http or https URL", template)
	case !strings.Contains(template, "{port}"):
		return fmt.Errorf("%q does not contain {port}", template)
	}
	return nil
}
