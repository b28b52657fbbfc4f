package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/rs/zerolog"
)

// Options configure a [Set]. The zero value of every field is its default,
// and so is a negative duration.
type Options struct {
	// ConnectTimeout bounds one connection attempt with its TLS handshake; 10 s.
	ConnectTimeout time.Duration
	// HealthInterval is how often replicas of style vllm and sglang are asked
	// for their health, and how long they have for the answer; 10 s.
	HealthInterval time.Duration
	// ResolveInterval is how often the addresses of replicas given by name are
	// looked up again, so that busy connections do not pin an old one; 30 s.
	ResolveInterval time.Duration
	// Logger gets one line for each replica that is taken out or comes back.
	Logger zerolog.Logger
	// Observer is told what happens; nil functions are not called.
	Observer Observer

	// Dial opens TCP connections. When nil they have keep-alive, and on Linux break
	// when what was sent is not acknowledged for 30 s. Of connections that are not
	// [syscall.Conn]s it is not noticed that the replica closed them while idle.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// LookupHost finds the addresses of a name. When nil it is the system's
	// resolver, or nothing is looked up if Dial is given.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// TLS is the base of the configuration of https replicas; the system's
	// roots when nil.
	TLS *tls.Config
	// Proxy chooses an HTTP proxy for a request; from the environment when nil. For
	// a replica that is not https it is asked once, when that is configured.
	Proxy func(*http.Request) (*url.URL, error)
}

// Observer is told about events as they happen. Its functions are called from
// many goroutines, on the path of requests, and must not block.
type Observer struct {
	// ConnectionOpened is called for each connection made.
	ConnectionOpened func(upstream string)
	// Done is called for each call to a replica once its answer's header is
	// there: code is the status, or one of the Code constants.
	Done func(upstream, code string)
}

// What [Observer.Done] is given when there is no status.
const (
	CodeDialError       = "dial_error"
	CodeConnectionError = "connection_error"
	CodeCanceled        = "canceled"
)

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(max(o.ConnectTimeout, 0), 10*time.Second)
	o.HealthInterval = cmp.Or(max(o.HealthInterval, 0), 10*time.Second)
	o.ResolveInterval = cmp.Or(max(o.ResolveInterval, 0), 30*time.Second)
	if o.LookupHost == nil && o.Dial == nil {
		o.LookupHost = net.DefaultResolver.LookupHost
	}
	if o.Dial == nil {
		o.Dial = dialer()
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	return o
}
