package frp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel"
)

// httpHeaderLimit is after how long without response headers frps answers a
// request to an HTTP proxy with 504, unless it is configured otherwise.
const httpHeaderLimit = 60 * time.Second

// Options configure a [Driver]. The zero value of every field but the first
// two and PublicURL is a default.
type Options struct {
	// ServerAddr is the host:port of frps.
	ServerAddr string
	// PublicURL is the template of the tunnels' URLs: with "{subdomain}" as the
	// first label of the host for HTTP proxies, "https://{subdomain}.example.net",
	// or with "{port}" as the port for TCP proxies, "http://example.net:{port}".
	PublicURL string
	// ProxyType is TypeHTTP or TypeTCP; TypeHTTP when empty.
	ProxyType string
	// Token is the shared secret of the server and its clients.
	Token string
	// User and Metas are sent with the login, for servers with plugins.
	User  string
	Metas map[string]string
	// PlainText leaves TLS out. Token and traffic are then open to whoever is on
	// the way.
	PlainText bool
	// CAFile holds the PEM certificates that the server's must lead to, and its
	// host must then be that of ServerAddr. Empty, the server is not verified,
	// as with frpc: traffic is encrypted, but perhaps not to the right one.
	CAFile string
	// ConcurrentLogins is how many tunnels log in at the same time; 8 when zero.
	ConcurrentLogins int
	// Logger takes connections lost and found; the zero value is silent.
	Logger zerolog.Logger
}

// Driver opens tunnels through one frps. It is safe for concurrent use.
type Driver struct {
	options Options
	url     urlTemplate
	tls     *tls.Config
	logins  *Logins
}

var (
	_ tunnel.Driver        = (*Driver)(nil)
	_ tunnel.HeaderLimiter = (*Driver)(nil)
)

// New checks the options, reading CAFile. All that is wrong is in the error,
// each with the name of its field.
func New(o Options) (*Driver, error) {
	if o.ProxyType == "" {
		o.ProxyType = TypeHTTP
	}
	d := &Driver{options: o, logins: NewLogins(o.ConcurrentLogins)}
	host, _, err := net.SplitHostPort(o.ServerAddr)
	if err != nil || host == "" {
		err = fmt.Errorf("ServerAddr: %q is not host:port", o.ServerAddr)
	}
	problems := []error{err}
	if o.ProxyType != TypeHTTP && o.ProxyType != TypeTCP {
		problems = append(problems, fmt.Errorf("ProxyType: %q is neither %q nor %q", o.ProxyType, TypeHTTP, TypeTCP))
	} else if d.url, err = parseTemplate(o.PublicURL, o.ProxyType); err != nil {
		problems = append(problems, fmt.Errorf("PublicURL: %w", err))
	}
	switch {
	case o.PlainText && o.CAFile != "":
		problems = append(problems, errors.New("CAFile: there is nothing to verify in plain text"))
	case !o.PlainText:
		if d.tls, err = clientTLS(host, o.CAFile); err != nil {
			problems = append(problems, fmt.Errorf("CAFile: %w", err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return d, nil
}

// clientTLS verifies the server by the certificates in the file, or not at all.
func clientTLS(host, file string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if file == "" {
		config.InsecureSkipVerify = true // frps makes up a certificate if it is not given one
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no PEM certificate in %s", file)
	}
	return config, nil
}

// Name is "frp".
func (d *Driver) Name() string { return "frp" }

// HeaderLimit is how long a response may take to begin: frps' default for HTTP
// proxies, no limit for TCP proxies.
func (d *Driver) HeaderLimit() time.Duration {
	if d.options.ProxyType == TypeHTTP {
		return httpHeaderLimit
	}
	return 0
}

// Open registers a subdomain that nobody can guess, or a port that the server
// picks; or those of the URL in l.Resume.
func (d *Driver) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	name := "mux-" + strings.ToLower(rand.Text())
	o := ClientOptions{
		ServerAddr: d.options.ServerAddr,
		Token:      d.options.Token,
		User:       d.options.User,
		Metas:      d.options.Metas,
		Proxy:      Proxy{Name: name, Type: d.options.ProxyType},
		Resumable:  true,
		TLS:        d.tls,
		Logins:     d.logins,
		Logger:     d.options.Logger.With().Str("server", l.Server).Logger(),
	}
	var err error
	switch {
	case o.Proxy.Type == TypeTCP && l.Resume != "":
		o.Proxy.RemotePort, err = d.url.port(l.Resume)
		o.URL = l.Resume
	case o.Proxy.Type == TypeTCP:
		o.URL = d.url.String()
	case l.Resume != "":
		o.Proxy.Subdomain, err = d.url.subdomain(l.Resume)
		o.URL = l.Resume
	default:
		o.Proxy.Subdomain = name
		o.URL = d.url.with(name)
	}
	if err != nil {
		return nil, &tunnel.ConfigError{Err: fmt.Errorf("resume %s: %w", l.Resume, err)}
	}
	return Connect(ctx, o, l.Serve)
}
