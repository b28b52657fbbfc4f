package upstream

import (
	"crypto/tls"
	"errors"
	"math"
	"net"
	"slices"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// replica is one address of an upstream with its connections. It lives until it
// is removed and its last call has ended.
type replica struct {
	upstream  *Upstream
	target    target
	seed      uint64 // of its place in the order of an affinity
	sessions  tls.ClientSessionCache
	addresses []string // of its name when it was last looked up; Run's alone

	// The upstream's lock guards what follows.
	transport transport
	health    health
	version   registry.Version
	inflight  int // calls whose answer has not been closed
	draining  bool
}

func newReplica(u *Upstream, t target) *replica {
	r := &replica{upstream: u, target: t, seed: hash(t.base()), sessions: tls.NewLRUClientSessionCache(0)}
	r.transport = newTransport(r)
	return r
}

// place is a call's place on a replica.
type place struct {
	*replica
	transport transport
	settings  *settings
	version   registry.Version
	trial     bool // the call shows whether the replica can be connected to
}

// pick takes a place on the best replica that is not among those tried: the
// first in the order of the affinity that carries less than 1.25 times its share,
// or, without an affinity, the one with the fewest calls. When there is none, it
// says how long it takes until one may be tried.
func (u *Upstream) pick(affinity string, tried []*replica) (p place, wait time.Duration, ok bool) {
	now := time.Now()
	key := hash(affinity)
	u.mu.Lock()
	defer u.mu.Unlock()

	usable := (*health).usable
	total, healthy := u.load(usable, now)
	if healthy == 0 {
		// Errors of one rollout's calls must not take the upstream from all
		// the others: what answers with errors still answers.
		usable = (*health).connectable
		total, healthy = u.load(usable, now)
	}
	if healthy == 0 {
		return place{}, u.retryAfter(now), false
	}
	share := (5*(total+1) + 4*healthy - 1) / (4 * healthy) // ceil(1.25 * (total+1) / healthy)

	var best *replica
	var bestScore uint64
	u.turn++
	for i := range u.replicas {
		r := u.replicas[(u.turn+i)%len(u.replicas)]
		if !usable(&r.health, now) || slices.Contains(tried, r) {
			continue
		}
		// Those within their share come first, in the order of the affinity.
		score := uint64(math.MaxUint32) - uint64(r.inflight) //nolint:gosec // a small count
		if affinity != "" && r.inflight < share {
			score = mix(key^r.seed) | 1<<63
		}
		if best == nil || score > bestScore {
			best, bestScore = r, score
		}
	}
	if best == nil {
		return place{}, u.retryAfter(now), false
	}
	p = place{replica: best, transport: best.transport, settings: u.settings.Load(), version: best.version, trial: best.health.refused}
	best.health.trial = p.trial
	best.inflight++
	return p, 0, true
}

// load counts the usable replicas and the calls they have. The lock must be held.
func (u *Upstream) load(usable func(*health, time.Time) bool, now time.Time) (calls, replicas int) {
	for _, r := range u.replicas {
		if usable(&r.health, now) {
			calls += r.inflight
			replicas++
		}
	}
	return calls, replicas
}

// retryAfter is how long until the first replica may be tried, in whole seconds.
// The lock must be held.
func (u *Upstream) retryAfter(now time.Time) time.Duration {
	var wait time.Duration
	for i, r := range u.replicas {
		if in := r.health.retryIn(now, u.options.HealthInterval); i == 0 || in < wait {
			wait = in
		}
	}
	return max(wait+time.Second-1, time.Second).Truncate(time.Second)
}

// release gives the place back.
func (p place) release() {
	u := p.upstream
	u.mu.Lock()
	defer u.mu.Unlock()
	p.inflight--
	if p.draining && p.inflight == 0 {
		u.draining = slices.DeleteFunc(u.draining, func(r *replica) bool { return r == p.replica })
	}
}

// dialFailed takes the replica out.
func (r *replica) dialFailed(err error) *DialError {
	netErr, ok := errors.AsType[net.Error](err)
	timeout := ok && netErr.Timeout() // also of a deadline that was exceeded
	r.observe(func(h *health, now time.Time) bool { return h.dialFailed(now, err.Error()) })
	return &DialError{Replica: r.target.replica, Err: err, Timeout: timeout}
}

// currentVersion is the weight version as it is now.
func (r *replica) currentVersion() registry.Version {
	r.upstream.mu.Lock()
	defer r.upstream.mu.Unlock()
	return r.version
}

// observe applies what was learnt to the replica's health and logs it when the
// replica went out or came back because of it.
func (r *replica) observe(learn func(h *health, now time.Time) (changed bool)) {
	now := time.Now()
	u := r.upstream
	u.mu.Lock()
	changed := learn(&r.health, now)
	up, reason, backoff := r.health.up(now), r.health.reason, r.health.backoff
	changed = changed && !r.draining
	u.mu.Unlock()
	switch {
	case changed && up:
		u.options.Logger.Info().Str("upstream", u.name).Str("replica", r.target.replica).Msg("replica is back")
	case changed:
		u.options.Logger.Warn().Str("upstream", u.name).Str("replica", r.target.replica).
			Str("reason", reason).Float64("backoff_seconds", backoff.Seconds()).Msg("replica is out")
	}
}

// status describes the replica. The lock must be held.
func (r *replica) status(now time.Time) ReplicaStatus {
	state := StateUp
	switch {
	case r.draining:
		state = StateDraining
	case !r.health.up(now):
		state = StateDown
	}
	return ReplicaStatus{
		Name:          r.target.replica,
		URL:           r.target.shown,
		State:         state,
		Inflight:      r.inflight,
		LastError:     r.health.reason,
		WeightVersion: r.version,
	}
}

// hash is FNV-1a: the order of an affinity must be the same after a restart,
// when the replicas' prefix caches are still warm.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads every bit of x over the whole result (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
