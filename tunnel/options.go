package tunnel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

// PoolOptions describe a [Pool]: either Driver and Listen, which make it
// elastic, or Servers, which make it static. The zero value of every other
// field is its default.
type PoolOptions struct {
	// Driver opens the tunnels of an elastic pool.
	Driver Driver
	// Listen makes the server that a tunnel is opened to. It becomes the pool's
	// to run and to shut down.
	Listen func(ctx context.Context, id string) (*Server, error)
	// Pacer spaces the attempts to open tunnels; nil does not.
	Pacer *pacing.Pacer
	// Servers are those of a static pool. They become the pool's to run and to
	// shut down. Name is what stands for their driver.
	Servers []*Server
	Name    string

	// Multiplex is how many sessions share a server; 32 when zero, negative is
	// no cap.
	Multiplex int
	// Min is how many servers an elastic pool keeps; 1 when zero, negative is
	// none.
	Min int
	// Max is how many servers it has at most; 0 is no cap.
	Max int
	// Idle is how long a server stays empty before it is closed; 5 min, negative
	// is for ever.
	Idle time.Duration

	// ProbeInterval is how long a fault of a public URL can go unnoticed; 30 s,
	// negative trusts the URLs of a static pool without a probe.
	ProbeInterval time.Duration
	// ProbeTimeout is how long one probe may take; 5 s.
	ProbeTimeout time.Duration
	// EndpointGrace is how long a public URL may fail before it is lost; 60 s.
	EndpointGrace time.Duration
	// OpenTimeout is how long one attempt of the driver may take; 60 s.
	OpenTimeout time.Duration
	// ReadyTimeout is how long the public URL of an open tunnel has to answer;
	// 30 s.
	ReadyTimeout time.Duration
	// Transport carries probes; nil is one of the pool's own that reuses no
	// connection and takes the HTTP proxy that the environment names, as whoever
	// reaches a public URL from here has to.
	Transport http.RoundTripper

	// Opened is told of each server that was opened, before a session is placed
	// on it, so that it can be recorded for Restore. Closed is told that a server
	// will not come back; it is not called when the pool is shut down.
	Opened func(Record)
	Closed func(server string)
	// Lost is told, in a goroutine of its own, which sessions have lost their
	// endpoint for good. Until they are released or moved it is told again, now
	// and then, because a session may be registered after the loss.
	Lost func(server string, sessions []string)
	// Observer is told what happens to tunnels.
	Observer Observer
	// Logger takes faults and the life of servers; the zero value is silent.
	Logger zerolog.Logger
}

// Observer has a function for each thing to be measured; nil ones are not
// called.
type Observer struct {
	// Paced is told how long an attempt waited for its turn.
	Paced func(time.Duration)
	// Attempted is told how each attempt of the driver came out and how long it
	// took.
	Attempted func(Outcome, time.Duration)
	// ProbeFailed is told of each failed probe of a server that had been ready.
	ProbeFailed func()
	// Lost is told of each public URL that was lost.
	Lost func()
}

// Outcome is how an attempt to open a tunnel came out.
type Outcome string

// The outcomes.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeTransient   Outcome = "transient"
	OutcomeRateLimited Outcome = "rate_limited"
	OutcomeQuota       Outcome = "quota"
	OutcomeAuth        Outcome = "auth"
	OutcomeConfig      Outcome = "config"
	OutcomeNotReady    Outcome = "not_ready" // up, but its URL does not lead to the server
	OutcomeCancelled   Outcome = "cancelled" // not needed any more
)

func (o PoolOptions) validate() error {
	switch {
	case (o.Driver == nil) == (len(o.Servers) == 0):
		return errors.New("tunnel: want either PoolOptions.Driver or PoolOptions.Servers")
	case o.Driver != nil && o.Listen == nil:
		return errors.New("tunnel: PoolOptions.Listen is nil")
	case o.Driver != nil && o.ProbeInterval < 0:
		return errors.New("tunnel: PoolOptions.ProbeInterval is negative: the URLs of a driver are probed")
	case o.Max > 0 && o.Min > o.Max:
		return errors.New("tunnel: PoolOptions.Min is more than Max")
	}
	return nil
}

func (o PoolOptions) withDefaults() PoolOptions {
	o.Multiplex = cmp.Or(o.Multiplex, 32)
	o.Min = max(cmp.Or(o.Min, 1), 0)
	o.Idle = cmp.Or(o.Idle, 5*time.Minute)
	o.ProbeInterval = cmp.Or(o.ProbeInterval, 30*time.Second)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 5*time.Second)
	o.EndpointGrace = cmp.Or(o.EndpointGrace, time.Minute)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, time.Minute)
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, 30*time.Second)
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DisableKeepAlives:   true,
			TLSHandshakeTimeout: o.ProbeTimeout,
		}
	}
	return o
}

// fixed says that the pool opens and closes no servers.
func (o PoolOptions) fixed() bool { return o.Driver == nil }

func (o PoolOptions) driver() string {
	if o.fixed() {
		return o.Name
	}
	return o.Driver.Name()
}
