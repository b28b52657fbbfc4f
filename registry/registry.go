package registry

import (
	"cmp"
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a [Registry]. The zero value is usable: it has no caps and the default times.
type Options struct {
	// MaxSessions caps the sessions that have not ended. 0 is no cap.
	MaxSessions int
	// MaxInflight caps the calls of all sessions that are in flight at a time. 0 is no cap.
	MaxInflight int
	// RequestsPerSecond is how many calls of all sessions are admitted a second, evenly spaced. 0 is no cap.
	RequestsPerSecond float64
	// AdmitTimeout is how long a call waits for concurrency and rates. Default 60s.
	AdmitTimeout time.Duration
	// Lease is how long a session lives that nothing renews, if its spec has none. Default 1h.
	Lease time.Duration
	// TombstoneTTL is how long an ended session's id and secret are known, at least. Default 1h.
	TombstoneTTL time.Duration
	// TraceRetention is how long an ended session's trace is kept. Default 1h.
	TraceRetention time.Duration
	// MaxTraceBytes is what traces may take. Beyond it those of ended sessions are dropped, the ones that were read first, and if
	// that is not enough no session can be registered. A live session's trace is never cut. 0 is no cap.
	MaxTraceBytes int64
	// Ended, if set, is called once for each session that has ended or was discarded, whatever ended it: its place is free. It is
	// called from several goroutines and must not block.
	Ended func(id string)
	// Journal keeps what has to outlast the process. Without one everything is in memory alone.
	Journal Journal
}

func (o *Options) setDefaults() {
	o.AdmitTimeout = cmp.Or(o.AdmitTimeout, 60*time.Second)
	o.Lease = cmp.Or(o.Lease, time.Hour)
	o.TombstoneTTL = cmp.Or(o.TombstoneTTL, time.Hour)
	o.TraceRetention = cmp.Or(o.TraceRetention, time.Hour)
	if o.Ended == nil {
		o.Ended = func(string) {}
	}
}

func (o *Options) validate() error {
	for _, option := range []struct {
		name     string
		negative bool
	}{
		{"MaxSessions", o.MaxSessions < 0},
		{"MaxInflight", o.MaxInflight < 0},
		{"RequestsPerSecond", !(o.RequestsPerSecond >= 0)},
		{"AdmitTimeout", o.AdmitTimeout < 0},
		{"Lease", o.Lease < 0},
		{"TombstoneTTL", o.TombstoneTTL < 0},
		{"TraceRetention", o.TraceRetention < 0},
		{"MaxTraceBytes", o.MaxTraceBytes < 0},
	} {
		if option.negative {
			return &InvalidError{option.name, "must not be negative"}
		}
	}
	return nil
}

// Registry holds all sessions of a process. Its methods may be called by any number of goroutines. Time passes only while
// [Registry.Run] runs.
type Registry struct {
	options  Options
	gate     gate // of the instance
	pace     pace // of the instance
	memory   memory
	schedule schedule
	draining atomic.Bool
	inflight atomic.Int64 // calls that were admitted and not closed
	waiting  atomic.Int64 // calls in Admit
	evicting sync.Mutex   // held by the one that evicts traces

	mu         sync.RWMutex
	byID       map[string]*entry
	bySecret   map[secretHash]*entry
	order      timeline  // of the sessions that can be listed
	ended      list.List // of *entry whose session has ended and still has its trace, in the order they ended
	live       int       // sessions that have not ended
	registered int64
	reasons    map[string]int64 // why sessions ended
	evicted    int64            // traces
}

// entry is what an id and a secret lead to. Registry.mu guards it.
type entry struct {
	id      string
	secret  secretHash
	row     uint32        // the session's in the journal
	session *Session      // nil when its trace is gone
	stone   *tombstone    // nil while the session is live
	retired *list.Element // in Registry.ended
	alarm   alarm         // guarded by the schedule
}

// tombstone is what is left of an ended session.
type tombstone struct {
	summary Summary
	until   time.Time
}

// New returns an empty registry. The error is an [InvalidError] that names the option.
func New(options Options) (*Registry, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	options.setDefaults()
	r := &Registry{
		options:  options,
		memory:   memory{limit: options.MaxTraceBytes},
		schedule: schedule{wake: make(chan struct{}, 1)},
		byID:     make(map[string]*entry),
		bySecret: make(map[secretHash]*entry),
		reasons:  make(map[string]int64),
	}
	r.gate.setLimit(options.MaxInflight)
	r.pace.set(options.RequestsPerSecond)
	return r, nil
}

// Drain makes Register and Admit answer [ErrDraining] from now on. Calls that were admitted, or wait for it, go on.
func (r *Registry) Drain() { r.draining.Store(true) }

// Cut cancels the calls of all sessions, with [ErrDraining] as the cause, and returns how many there were. It ends a drain.
func (r *Registry) Cut() int {
	r.mu.RLock()
	sessions := make([]*Session, 0, len(r.byID))
	for _, e := range r.byID {
		if e.session != nil {
			sessions = append(sessions, e.session)
		}
	}
	r.mu.RUnlock()
	cut := 0
	for _, s := range sessions {
		s.mu.Lock()
		for c := range s.calls {
			c.cancel(ErrDraining)
			cut++
		}
		s.mu.Unlock()
	}
	return cut
}

// Lookup returns the session with this secret. The error is [ErrUnknownSecret], or an [EndedError] as long as the session's trace or
// tombstone is kept.
func (r *Registry) Lookup(secret string) (*Session, error) {
	hash := hashSecret(secret)
	r.mu.RLock()
	e := r.bySecret[hash]
	if e == nil {
		r.mu.RUnlock()
		return nil, ErrUnknownSecret
	}
	session, stone := e.session, e.stone
	r.mu.RUnlock()
	if session == nil {
		return nil, &EndedError{ID: e.id, Reason: stone.summary.EndReason}
	}
	if ended := session.ended.Load(); ended != nil {
		return nil, ended
	}
	return session, nil
}

// Get returns the session with this id, live or ended. The error is [ErrNotFound], also when the trace is gone.
func (r *Registry) Get(id string) (*Session, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.byID[id]; e != nil && e.session != nil {
		return e.session, nil
	}
	return nil, ErrNotFound
}
