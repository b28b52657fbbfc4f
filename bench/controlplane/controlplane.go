// Package controlplane stands in for the control plane of Prime tunnels, in
// tests and benchmarks. A [ControlPlane] is an http.Handler with two faces: the
// REST API that makes and deletes tunnels, and the plugin endpoint at which a
// real frps asks whether a client may log in and serve a host name:
//
//	[[httpPlugins]]
//	name = "controlplane"
//	addr = "127.0.0.1:9000"
//	path = "/frps"
//	ops = ["Login", "NewProxy", "CloseProxy", "Ping", "NewWorkConn"]
//
// It has the provider's limits (creations in any sliding minute, a quota of
// tunnels, expiry, deletion that leaves the record readable), takes the time a
// real one takes, counts what is asked of it and fails on demand: see [Fault].
// It shares no code with the driver that it is used to test.
package controlplane

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// PluginPath is where frps asks.
const PluginPath = "/frps"

// Options say how a [ControlPlane] behaves. The zero value takes every key and
// limits creation as Prime does.
type Options struct {
	// Key is the API key; empty takes any.
	Key string
	// URL is the public URL of a tunnel with {id} in place of its id;
	// "https://{id}.tunnel.test" when empty.
	URL string
	// FRPToken, ServerHost and ServerPort are what a tunnel's client logs in to
	// frps with; the port is 7000 when zero.
	FRPToken, ServerHost string
	ServerPort           int

	// Rate is how many creations a key may make within any Window: 512 in a
	// minute when zero. The next is answered 429.
	Rate   int
	Window time.Duration
	// NoRetryAfter leaves the Retry-After header out of a 429.
	NoRetryAfter bool
	// MaxTunnels is the quota of a key, zero is none.
	MaxTunnels int
	// Delays is how long the creations take, one after the other and then from
	// the beginning; none when empty.
	Delays []time.Duration
	// Lifetime is the time to a tunnel's expires_at, a day when zero.
	Lifetime time.Duration
	// Reap is how long a tunnel's client may stay away before the tunnel
	// expires, an hour when zero.
	Reap time.Duration
}

// Counts is what was asked so far.
type Counts struct {
	Creates     int // POSTs that arrived
	Created     int // of them, those that made a tunnel
	RateLimited int // of them, those refused with 429
	Gets        int
	Deletes     int
	Lists       int
	BulkDeletes int

	Logins        int // that frps asked about
	LoginsRefused int
	Proxies       int
	ProxiesClosed int
	Pings         int
	WorkConns     int
}

// A ControlPlane makes tunnels. It is safe for concurrent use.
type ControlPlane struct {
	options Options
	mux     *http.ServeMux

	mu      sync.Mutex
	tunnels map[string]*Tunnel
	order   []string               // ids, oldest first
	starts  map[string][]time.Time // creations of a key within the window
	faults  map[Op]*fault
	counts  Counts
}

// New returns a control plane without tunnels.
func New(o Options) *ControlPlane {
	o.URL = cmp.Or(o.URL, "https://{id}.tunnel.test")
	o.ServerPort = cmp.Or(o.ServerPort, 7000)
	o.Rate = cmp.Or(o.Rate, 512)
	o.Window = cmp.Or(o.Window, time.Minute)
	o.Lifetime = cmp.Or(o.Lifetime, 24*time.Hour)
	o.Reap = cmp.Or(o.Reap, time.Hour)
	c := &ControlPlane{
		options: o,
		mux:     http.NewServeMux(),
		tunnels: make(map[string]*Tunnel),
		starts:  make(map[string][]time.Time),
		faults:  make(map[Op]*fault),
	}
	c.mux.HandleFunc("POST /api/v1/tunnel", c.handle(Create, c.create))
	c.mux.HandleFunc("GET /api/v1/tunnel", c.handle(List, c.list))
	c.mux.HandleFunc("DELETE /api/v1/tunnel", c.handle(BulkDelete, c.bulkDelete))
	c.mux.HandleFunc("GET /api/v1/tunnel/{id}", c.handle(Get, c.get))
	c.mux.HandleFunc("DELETE /api/v1/tunnel/{id}", c.handle(Delete, c.delete))
	c.mux.HandleFunc("POST "+PluginPath, c.plugin)
	return c
}

// ServeHTTP serves the REST API and the plugin endpoint.
func (c *ControlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

// Counts is what was asked so far.
func (c *ControlPlane) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Tunnels is every tunnel that was made, oldest first, deleted ones included.
func (c *ControlPlane) Tunnels() []Tunnel {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	all := make([]Tunnel, 0, len(c.order))
	for _, id := range c.order {
		t := *c.tunnels[id]
		t.Labels = slices.Clone(t.Labels)
		all = append(all, t)
	}
	return all
}

// Live is the number of tunnels that are neither deleted nor expired.
func (c *ControlPlane) Live() int {
	n := 0
	for _, t := range c.Tunnels() {
		if !t.Status.Terminal() {
			n++
		}
	}
	return n
}

// Expire ends a tunnel as the provider does: its record says EXPIRED, frps
// refuses its next login, and a session that is connected goes on.
func (c *ControlPlane) Expire(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.tunnels[id]; ok {
		t.end(Expired)
	}
}

// Forget removes a tunnel without a trace: it is answered 404 from now on.
func (c *ControlPlane) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tunnels, id)
	c.order = slices.DeleteFunc(c.order, func(other string) bool { return other == id })
}

// expire ends the tunnels whose time has come. The caller holds mu.
func (c *ControlPlane) expire() {
	now := time.Now()
	for _, t := range c.tunnels {
		away := t.Status != Connected && now.Sub(t.awaySince) > c.options.Reap
		if !t.Status.Terminal() && (away || now.After(t.ExpiresAt)) {
			t.end(Expired)
		}
	}
}

// limited notes a creation by this key, or says how long it has to wait. The
// caller holds mu.
func (c *ControlPlane) limited(key string) (wait time.Duration) {
	now := time.Now()
	recent := slices.DeleteFunc(c.starts[key], func(at time.Time) bool { return now.Sub(at) >= c.options.Window })
	if len(recent) >= c.options.Rate {
		wait = recent[0].Add(c.options.Window).Sub(now)
	} else {
		recent = append(recent, now)
	}
	c.starts[key] = recent
	return wait
}

// key is what the request is authorised with, and whether it is good.
func (c *ControlPlane) key(r *http.Request) (string, bool) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key, ok && key != "" && (c.options.Key == "" || key == c.options.Key)
}
