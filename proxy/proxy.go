// Package proxy is the data plane: what harnesses talk to.
//
// One model call goes this way, top to bottom, and each step is a file:
//
//	proxy.go     the request arrives; one record is opened for it (record.go)
//	route.go     its path is brought to the canonical form and looked up
//	secret.go    its secret names the session
//	body.go      the whole body is read, within the limits, and with those that are
//	             read beside it within the room for all of them (gate.go)
//	retry.go     a retry is answered by what it repeats: replay.go by a turn,
//	             join.go by a call that still runs; attempts.go knows both
//	call.go      the registry admits the call; the dialect applies overrides
//	send.go      an upstream replica gets it (header.go says with which headers)
//	respond.go   the answer is judged by its status and type, and goes on to
//	json.go      a JSON body, held whole, committed, then released, or
//	stream.go    events, relayed as they come, the terminal one held until
//	             the turn is committed (stream_end.go)
//	early.go     behind a tunnel that would give up, the answer begins before
//	             there is one
//	errors.go    whatever went wrong becomes a status and a body, in one table,
//	             and the kind of a failed call (failure.go)
//
// However it ends, the reservation is freed and exactly one record is emitted.
package proxy

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// Options configure a Proxy. Registry, Upstreams and Metrics are required;
// everything else has a default.
type Options struct {
	Registry  *registry.Registry
	Upstreams *upstream.Set
	Metrics   *metrics.Metrics
	Logger    zerolog.Logger // silent when zero

	MaxBodyBytes     int64         // of one request or answer, decoded; 256 MiB
	MaxInflightBytes int64         // of request bodies held at once; 2 GiB, negative is no cap
	AdmitTimeout     time.Duration // how long a request waits for MaxInflightBytes; 60 s

	Keepalive        time.Duration // silence on a stream before a comment is sent; 3 s, negative is never
	FirstByteTimeout time.Duration // from dispatch to the upstream's header, of a stream to its first event; 15 min
	IdleTimeout      time.Duration // between two reads of an upstream's answer after that; 5 min
	WriteTimeout     time.Duration // for one write to the client; 60 s
	ReadTimeout      time.Duration // for one read of a client's body; 60 s

	Hooks          *hook.Client  // asks the URLs that sessions name; by default those of this machine's loopback
	RetryGrace     time.Duration // that a call outlives its client by, for a retry; 2 s, negative is none
	ReplayMaxBytes int64         // of what is kept for retries; 64 MiB, negative is nothing

	// HeaderLimit is how long the public side of the servers waits for the header
	// of an answer before it gives up; from three quarters of it on model calls are
	// answered with keepalives, and the 200 that these commit, and what is passed
	// through is given up at nine tenths. 0 is no limit.
	HeaderLimit time.Duration

	SessionHeader string // carries the session's affinity upstream; X-Session-ID
}

// A Proxy serves the data plane. It is safe for concurrent use.
type Proxy struct {
	options Options // never changed
	routes  map[string]route
	bodies  *bodyGate // nil without a cap

	bodyPool bodyPool

	attempts *attempts

	firstByte, idle *timeoutError // the budgets of every call, as what running out of them means
}

// New makes a Proxy.
func New(o Options) (*Proxy, error) {
	if o.Registry == nil || o.Upstreams == nil || o.Metrics == nil {
		return nil, errors.New("proxy options: Registry, Upstreams and Metrics are required")
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 256<<20)
	o.MaxInflightBytes = cmp.Or(o.MaxInflightBytes, 2<<30)
	o.AdmitTimeout = cmp.Or(o.AdmitTimeout, time.Minute)
	o.Keepalive = cmp.Or(o.Keepalive, 3*time.Second)
	o.FirstByteTimeout = cmp.Or(o.FirstByteTimeout, 15*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 5*time.Minute)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, time.Minute)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, time.Minute)
	if o.Hooks == nil {
		o.Hooks = hook.New(hook.Options{})
	}
	o.SessionHeader = http.CanonicalHeaderKey(cmp.Or(o.SessionHeader, "X-Session-ID"))
	o.RetryGrace = cmp.Or(o.RetryGrace, 2*time.Second)
	o.ReplayMaxBytes = cmp.Or(o.ReplayMaxBytes, 64<<20)
	p := &Proxy{
		options: o, routes: routes(), attempts: newAttempts(o.RetryGrace, o.ReplayMaxBytes),
		firstByte: &timeoutError{budgetFirstByte, o.FirstByteTimeout}, idle: &timeoutError{budgetIdle, o.IdleTimeout},
	}
	if o.MaxInflightBytes > 0 {
		p.bodies = newBodyGate(o.MaxInflightBytes, o.AdmitTimeout)
	}
	return p, nil
}

// ServerHeader is on every answer of the data plane and carries the nonce of
// the server that gave it, so that a probe through a public URL can tell this
// server from any other.
const ServerHeader = "X-Muxproxy-Server"

// Handler is the data plane as the server with that nonce serves it. All
// handlers of a Proxy share its state.
func (p *Proxy) Handler(nonce string) http.Handler {
	server := []string{nonce} // of every answer, never changed
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := newExchange(p, w, r)
		h := w.Header()
		h[ServerHeader], h[requestIDHeader] = server, x.requestIDs[:]
		x.awaitEarly()
		defer x.finish()
		if err := x.serve(); err != nil {
			x.refuse(err)
		}
	})
}

// serve finds the route and lets it answer. An error means that nothing was
// answered yet.
func (x *exchange) serve() error {
	route, serve, err := x.proxy.find(x.request)
	x.route, x.dialect = route.pattern, route.dialect
	if unknown, ok := errors.AsType[*routeError](err); ok && x.holdsSecret(unknown.path) {
		unknown.path = ""
	}
	if err != nil {
		return err
	}
	return serve(x)
}
