package upstream

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errNotNeeded ends a dial whose call has a connection already, or has ended.
var errNotNeeded = errors.New("connection not needed")

// standard is net/http's transport.
//
// That starts a dial for each call that finds no idle connection, and goes on
// with it when the call is then served by one that another call has finished
// with. Here a dial begins only while there are fewer connections than calls, so
// that there are never more connections than there were calls at once. A call can
// wait for its dial only while some connection has no call: one that is about to
// be given to it, or that is about to close and then makes room. One that speaks HTTP/2
// may do neither, and is not counted.
type standard struct {
	replica   *replica
	transport *http.Transport

	mu      sync.Mutex // guards what follows
	retired bool       // no more calls will come
	calls   int        // calls and health checks that may need a connection
	conns   int        // connections open or being made, without those that calls share
	waiting []*turn
}

// turn is a dial that waits for room.
type turn struct {
	route *route
	ready chan bool // whether to dial; buffered
}

func newStandard(r *replica) *standard {
	s := &standard{replica: r}
	o := &r.upstream.options
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(r.target.scheme == "https")
	s.transport = &http.Transport{
		Proxy:                  o.Proxy,
		DialContext:            s.dial,
		DialTLSContext:         s.dialTLS,
		OnProxyConnectResponse: s.checkProxy,
		TLSClientConfig:        o.TLS,            // behind a proxy only,
		TLSHandshakeTimeout:    o.ConnectTimeout, // as is this
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1 << 16,
		IdleConnTimeout:        idleTimeout,
		Protocols:              protocols,
		// A peer that vanished is noticed within half a minute.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
	return s
}

func (s *standard) closeIdle() { s.transport.CloseIdleConnections() }

func (s *standard) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	// This also closes each connection whose call ends later, until another call
	// begins.
	s.closeIdle()
}

// enter counts a call.
func (s *standard) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.admit()
}

// leave takes a call off the count.
func (s *standard) leave() {
	s.mu.Lock()
	s.calls--
	last := s.retired && s.calls == 0
	s.mu.Unlock()
	if last {
		s.closeIdle()
	}
}

// admit lets dials begin that have room now. The lock must be held.
func (s *standard) admit() {
	for len(s.waiting) > 0 && s.conns < s.calls {
		s.waiting[0].ready <- true
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.conns++
	}
}

// awaitRoom returns when a connection may be made for the route.
func (s *standard) awaitRoom(t *route) error {
	s.mu.Lock()
	t.waits.Store(true) // before looking at settled: one of the two sides sees the other
	if t.settled.Load() {
		s.mu.Unlock()
		return errNotNeeded
	}
	w := &turn{route: t, ready: make(chan bool, 1)}
	s.waiting = append(s.waiting, w)
	s.admit()
	s.mu.Unlock()
	if !<-w.ready {
		return errNotNeeded
	}
	return nil
}

// disconnected makes room when a connection was closed or could not be made.
func (s *standard) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	s.admit()
}

// route is a call's way to a connection. The context of its dials carries it.
type route struct {
	transport *standard
	settled   atomic.Bool // the call needs no connection any more
	waits     atomic.Bool // a dial for the call may be waiting
}

type routeKey struct{}

// settle ends dials that still wait for room.
func (t *route) settle() {
	t.settled.Store(true)
	if !t.waits.Load() {
		return
	}
	s := t.transport
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(w *turn) bool {
		if w.route == t {
			w.ready <- false
		}
		return w.route == t
	})
}
