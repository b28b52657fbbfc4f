package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Run asks the replicas of style vllm and sglang for their health, takes out
// those that fail three times in a row and takes them back when they answer, and
// follows names whose addresses change. It returns nil when ctx is done.
func (s *Set) Run(ctx context.Context) error {
	health := time.NewTicker(s.options.HealthInterval)
	defer health.Stop()
	names := time.NewTicker(s.options.ResolveInterval)
	defer names.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-health.C:
			s.each(func(r *replica) { r.probe(ctx) })
		case <-names.C:
			s.each(func(r *replica) { r.resolve(ctx) })
		}
	}
}

// each calls do for all replicas at once and waits.
func (s *Set) each(do func(*replica)) {
	var wg sync.WaitGroup
	for _, u := range s.upstreams() {
		for _, r := range u.active() {
			wg.Go(func() { do(r) })
		}
	}
	wg.Wait()
}

// probe asks the replica once. An answer below 500 is a good one, whatever it
// says: a router without /health in front of it is no reason to take it out.
func (r *replica) probe(ctx context.Context) {
	u := r.upstream
	u.mu.Lock()
	p := place{replica: r, transport: r.transport, settings: u.settings.Load()}
	// An engine that loads weights may well be silent. It is not out for that.
	ask := p.settings.style.probed() && !r.draining && u.paused == nil
	u.mu.Unlock()
	if !ask {
		return
	}

	limited, cancel := context.WithTimeout(ctx, u.options.HealthInterval)
	defer cancel()
	m := &message{method: http.MethodGet, target: &r.target, health: true, settings: p.settings}
	res, err := p.transport.roundTrip(limited, m)
	reason := ""
	switch {
	case err == nil:
		// Read to its end, the connection can be used again.
		_, _ = io.CopyN(io.Discard, res.Body, 1<<16)
		_ = res.Body.Close()
		if res.StatusCode >= http.StatusInternalServerError {
			reason = "health check: status " + strconv.Itoa(res.StatusCode)
		}
	case ctx.Err() != nil:
		return
	default:
		reason = "health check: " + err.Error()
	}
	r.observe(func(h *health, now time.Time) bool {
		if reason != "" {
			return h.struck(now, reason)
		}
		return h.well(now)
	})
}

// resolve gives the replica new connections when its name has got other
// addresses; connections that are never idle would keep to an old one for ever.
// A failed look-up changes nothing.
func (r *replica) resolve(ctx context.Context) {
	host, lookup := r.target.name, r.upstream.options.LookupHost
	if lookup == nil || net.ParseIP(host) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.upstream.options.ConnectTimeout)
	defer cancel()
	found, err := lookup(ctx, host)
	if err != nil || len(found) == 0 {
		return
	}
	slices.Sort(found)
	if r.addresses != nil && !slices.Equal(found, r.addresses) {
		r.reconnect()
	}
	r.addresses = found
}

// reconnect makes calls from now on use new connections.
func (r *replica) reconnect() {
	u := r.upstream
	fresh := newTransport(r)
	u.mu.Lock()
	old, removed := r.transport, r.draining
	r.transport = fresh
	u.mu.Unlock()
	old.retire()
	if removed {
		fresh.retire()
	}
}
