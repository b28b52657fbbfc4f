package upstream

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// idleTimeout is below the five seconds after which uvicorn, which serves most
// inference engines, closes idle connections: a request must not meet that close.
const idleTimeout = 4 * time.Second

// errNotNeeded ends a dial whose call has a connection already, or has ended.
var errNotNeeded = errors.New("connection not needed")

// pool is the connections to a replica at the addresses its name has now.
//
// net/http starts a dial for each call that finds no idle connection, and goes on
// with it when the call is then served by one that another call has finished
// with. A pool lets a dial begin only while there are fewer connections than
// calls, so that there are never more connections than there were calls at once.
// A call can wait for its dial only while some connection has no call: one that
// is about to be given to it, or that is about to close and then makes room.
type pool struct {
	replica   *replica
	transport *http.Transport

	// The upstream's lock guards what follows.
	retired bool // no more calls will come
	calls   int  // calls and health checks that may need a connection
	conns   int  // connections open or being made
	waiting []*waiter
}

// waiter is a dial that waits for room.
type waiter struct {
	route *route
	ready chan bool // whether to dial; buffered
}

func newPool(r *replica) *pool {
	p := &pool{replica: r}
	p.transport = p.newTransport()
	return p
}

func (p *pool) newTransport() *http.Transport {
	o := &p.replica.upstream.options
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(p.replica.target.scheme == "https")
	return &http.Transport{
		Proxy:                  o.Proxy,
		DialContext:            p.dial,
		DialTLSContext:         p.dialTLS,
		OnProxyConnectResponse: p.checkProxy,
		TLSClientConfig:        o.TLS,            // behind a proxy only,
		TLSHandshakeTimeout:    o.ConnectTimeout, // as is this
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1 << 16,
		IdleConnTimeout:        idleTimeout,
		Protocols:              protocols,
		// A peer that vanished is noticed within half a minute.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// enter counts a call. The lock must be held.
func (p *pool) enter() {
	p.calls++
	p.admit()
}

// leave takes a call off the count, and reports whether the connections must be
// closed because it was the last one. The lock must be held.
func (p *pool) leave() (done bool) {
	p.calls--
	return p.retired && p.calls == 0
}

// retire expects no more calls, and reports whether the connections must be
// closed because there are none. The lock must be held.
func (p *pool) retire() (done bool) {
	p.retired = true
	return p.calls == 0
}

// admit lets dials begin that have room now. The lock must be held.
func (p *pool) admit() {
	for len(p.waiting) > 0 && p.conns < p.calls {
		p.waiting[0].ready <- true
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.conns++
	}
}

// awaitRoom returns when a connection may be made for the route.
func (p *pool) awaitRoom(t *route) error {
	mu := &p.replica.upstream.mu
	mu.Lock()
	t.waits.Store(true) // before looking at settled: one of the two sides sees the other
	if t.settled.Load() {
		mu.Unlock()
		return errNotNeeded
	}
	w := &waiter{route: t, ready: make(chan bool, 1)}
	p.waiting = append(p.waiting, w)
	p.admit()
	mu.Unlock()
	if !<-w.ready {
		return errNotNeeded
	}
	return nil
}

// disconnected makes room when a connection was closed or could not be made.
func (p *pool) disconnected() {
	p.replica.upstream.mu.Lock()
	defer p.replica.upstream.mu.Unlock()
	p.conns--
	p.admit()
}

// route is a call's way to a connection. The context of its dials carries it.
type route struct {
	pool    *pool
	settled atomic.Bool // the call needs no connection any more
	waits   atomic.Bool // a dial for the call may be waiting
}

type routeKey struct{}

// settle ends dials that still wait for room.
func (t *route) settle() {
	t.settled.Store(true)
	if !t.waits.Load() {
		return
	}
	p := t.pool
	p.replica.upstream.mu.Lock()
	defer p.replica.upstream.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if w.route == t {
			w.ready <- false
		}
		return w.route == t
	})
}
