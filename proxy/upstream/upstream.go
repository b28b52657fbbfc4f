package upstream

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// Upstream is a named model API. Its methods may be called concurrently, also
// while its configuration is replaced; a call keeps the one it was sent with.
type Upstream struct {
	name     string
	options  Options
	settings atomic.Pointer[settings]
	refused  atomic.Uint32 // see Refuse

	mu       sync.Mutex // also guards what replica says
	replicas []*replica
	draining []*replica           // removed, with calls in flight
	turn     int                  // where the search for the least loaded replica starts
	calls    map[*answer]struct{} // in flight
	idle     chan struct{}        // closed when no call is in flight; nil when nobody waits for that
	paused   *pausing             // nil when calls go on
	held     int                  // calls that wait for the end of a pause
}

// Name is the name the upstream was put under.
func (u *Upstream) Name() string { return u.name }

// Style is how the upstream expects to be spoken to.
func (u *Upstream) Style() Style { return u.settings.Load().style }

// AsksUsage reports whether muxproxy may add fields that ask for token counts.
func (u *Upstream) AsksUsage() bool { return u.settings.Load().usage != UsageNever }

// Refuse remembers that the upstream refused something that muxproxy adds to
// requests, as bits whose meaning is the caller's, until its configuration is put
// again.
func (u *Upstream) Refuse(bits uint32) { u.refused.Or(bits) }

// Refused returns all that was given to Refuse.
func (u *Upstream) Refused() uint32 { return u.refused.Load() }

// SetWeightVersion notes which weights a replica, or with an empty name all of
// them, serve from now on. It returns [ErrNotFound] when there is no such replica.
func (u *Upstream) SetWeightVersion(replica string, v registry.Version) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := replica == ""
	for _, r := range u.replicas {
		if replica == "" || r.target.replica == replica {
			r.version = v
			found = true
		}
	}
	if !found {
		return fmt.Errorf("replica %q of upstream %s: %w", replica, u.name, ErrNotFound)
	}
	return nil
}

// Status describes the upstream as it is now, without credentials.
func (u *Upstream) Status() Status {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	config := u.settings.Load()
	s := Status{
		Name:      u.name,
		Style:     config.style,
		Usage:     config.usage,
		Headers:   slices.Clone(config.headerNames),
		HasAPIKey: config.apiKey,
		Inflight:  len(u.calls),
		Paused:    u.pauseStatus(),
		Replicas:  make([]ReplicaStatus, 0, len(u.replicas)+len(u.draining)),
	}
	for _, r := range u.replicas {
		s.Replicas = append(s.Replicas, r.status(now))
	}
	for _, r := range u.draining {
		s.Replicas = append(s.Replicas, r.status(now))
	}
	return s
}

// configure makes s the settings of calls from now on. Replicas of the same name
// and URL stay as they are; the others finish the calls they have.
func (u *Upstream) configure(s *settings) {
	u.mu.Lock()
	old := u.replicas
	u.replicas = make([]*replica, 0, len(s.targets))
	u.settings.Store(s)
	u.refused.Store(0)
	for _, t := range s.targets {
		same := func(r *replica) bool { return r.target.replica == t.replica && r.target.raw == t.raw }
		var r *replica
		if i := slices.IndexFunc(old, same); i >= 0 {
			r = old[i]
		} else {
			r = newReplica(u, t)
		}
		if !s.style.probed() {
			r.health.strikes = 0
		}
		u.replicas = append(u.replicas, r)
	}
	gone := u.drain(old)
	u.mu.Unlock()
	retire(gone)
}

// retire removes all replicas.
func (u *Upstream) retire() {
	u.mu.Lock()
	old := u.replicas
	u.replicas = nil
	u.unpause(nil)
	gone := u.drain(old)
	u.mu.Unlock()
	retire(gone)
}

// drain marks those of old that are no longer used as draining, and returns
// their transports. The lock must be held.
func (u *Upstream) drain(old []*replica) (gone []transport) {
	for _, r := range old {
		if slices.Contains(u.replicas, r) {
			continue
		}
		r.draining = true
		if r.inflight > 0 {
			u.draining = append(u.draining, r)
		}
		gone = append(gone, r.transport)
	}
	return gone
}

// active returns the replicas that take calls.
func (u *Upstream) active() []*replica {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.replicas)
}

// transports returns those of all replicas, also of those that are draining.
func (u *Upstream) transports() []transport {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]transport, 0, len(u.replicas)+len(u.draining))
	for _, r := range slices.Concat(u.replicas, u.draining) {
		all = append(all, r.transport)
	}
	return all
}

func retire(gone []transport) {
	for _, t := range gone {
		t.retire()
	}
}
