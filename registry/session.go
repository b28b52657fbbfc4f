package registry

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Session is one rollout. Its methods may be called by any number of goroutines, also after it has ended.
type Session struct {
	// These do not change once the session is registered.
	id         string
	number     uint64 // sessions registered later have higher ones
	registry   *Registry
	entry      *entry
	conditions []StopCondition
	digest     [32]byte
	createdAt  time.Time
	life       context.Context // see Life
	finish     context.CancelCauseFunc
	settled    chan struct{} // closed when the session has begun to end and no call is in flight
	buried     chan struct{} // closed when the end is complete

	gate  gate
	pace  pace
	store store

	ended   atomic.Pointer[EndedError] // set with state
	read    atomic.Bool                // the trace was read, and nothing was added since
	updates sync.Mutex                 // held by the one that updates the session

	mu            sync.Mutex
	spec          *Spec // replaced, never changed
	settings      *Settings
	state         State
	stopCondition string
	durationOver  bool // and its calls were cancelled
	refusedTurn   bool // a call was refused only because calls in flight had taken the last turns
	endedAt       time.Time
	final         *Summary // once the trace is sealed
	expiresAt     time.Time

	calls    map[*Call]struct{} // waiting, or in flight
	inflight int                // calls in flight
	reserved int                // calls in flight that have not become a turn or a failed call

	turns       []*Turn
	lineage     lineage
	failures    failureLog
	usage       TotalUsage
	lastContext int64 // tokens of the newest turn's prompt and completion
	modelTime   time.Duration
	versions    VersionRange
	lastError   *CallError
	undecided   []*Turn           // see AskLater
	hookErrors  map[string]string // see HookAsked
	firstCallAt time.Time
	lastCallAt  time.Time

	// With a journal.
	touched     bool          // its state will be written
	committing  int           // calls whose turns are on the way to the disk
	sealing     chan struct{} // closed when there are none; nil before somebody waits for that
	lastCallRow uint32        // the highest id of a call
	unwritten   int           // failed calls that are still to be written
	endWritten  bool          // and that the session has ended is
	unloaded    bool          // the trace has been written to its end and is no longer in memory
}

// Life returns a context that is done once the session has ended; its cause is the [EndedError]. It is for what is done on the
// session's account without being a call.
func (s *Session) Life() context.Context { return s.life }

// Settings returns the session's settings as they are now. They must not be changed.
func (s *Session) Settings() *Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// newSession makes a session of a valid spec, which it keeps.
func newSession(r *Registry, spec *Spec) *Session {
	now := time.Now()
	spec.Lease = cmp.Or(spec.Lease, r.options.Lease)
	s := &Session{
		id: spec.ID, registry: r, createdAt: now, conditions: spec.StopConditions, digest: spec.Digest,
		settled: make(chan struct{}), buried: make(chan struct{}),
		store: store{memory: &r.memory},
		state: StateActive, expiresAt: spec.expiry(now),
		calls: make(map[*Call]struct{}),
	}
	if r.journals() {
		s.store.session = s
	}
	s.life, s.finish = context.WithCancelCause(context.Background())
	s.entry = &entry{id: s.id, session: s}
	s.entry.alarm.owner = s.entry
	s.apply(spec)
	return s
}

// apply makes spec the session's.
func (s *Session) apply(spec *Spec) {
	s.spec, s.settings = spec, spec.settings()
	s.refusedTurn = false
	limit, perSecond := 0, 0.0
	if spec.Limits.MaxInflight != nil {
		limit = *spec.Limits.MaxInflight
	}
	if spec.Limits.RequestsPerSecond != nil {
		perSecond = *spec.Limits.RequestsPerSecond
	}
	s.gate.setLimit(limit)
	s.pace.set(perSecond)
}

// Number tells the session from every other of this process, also from those that have had the same id.
func (s *Session) Number() uint64 { return s.number }

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// State returns the session's state.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Spec returns a copy of what the session was registered with and updated to. It has no secret.
func (s *Session) Spec() Spec {
	s.mu.Lock()
	spec := s.spec
	s.mu.Unlock()
	return spec.clone()
}

// Summary returns the session at this moment. Its labels, metadata and failed calls must not be changed.
func (s *Session) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.summary()
}

func (s *Session) summary() Summary {
	if s.final != nil {
		return *s.final
	}
	summary := Summary{
		ID: s.id, State: s.state, StopCondition: s.stopCondition,
		Turns: len(s.turns), Usage: s.usage, FailedCalls: maps.Clone(s.failures.byKind), Inflight: s.inflight,
		ModelTime: s.modelTime, WeightVersion: s.versions, LastError: s.lastError,
		Labels: s.spec.Labels, Metadata: s.spec.Metadata, Placement: s.spec.Placement,
		CreatedAt: s.createdAt, ExpiresAt: s.expiresAt, FirstCallAt: s.firstCallAt, LastCallAt: s.lastCallAt, EndedAt: s.endedAt,
	}
	if ended := s.ended.Load(); ended != nil {
		summary.EndReason = ended.Reason
	}
	return summary
}

// Update changes the session's limits, labels, metadata, model, upstream, affinity, sampling and lease by what change does to a copy of
// its spec; anything else stays as it is. That holds for calls admitted afterwards, and renews the lease. An update never makes a
// stopped session active again. The error is change's, an [InvalidError], an [EndedError] or an [ErrNotWritten]; nothing has changed then.
//
// Updates come one after another. change must not update the same session.
func (s *Session) Update(change func(*Spec) error) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return ended
	}
	next := s.Spec()
	if err := change(&next); err != nil {
		return err
	}
	if err := next.validate(); err != nil {
		return err
	}
	next = next.clone()
	s.keepFixed(&next)
	if err := s.saveSpec(&next); err != nil {
		return err
	}
	return s.replace(&next)
}

// keepFixed puts into an updated spec what updates do not change.
func (s *Session) keepFixed(next *Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next.ID, next.Digest, next.Placement, next.StopConditions = s.id, s.digest, s.spec.Placement, s.conditions
	next.OnEndpointLoss = s.spec.OnEndpointLoss
	next.Lease = cmp.Or(next.Lease, s.registry.options.Lease)
}

func (s *Session) replace(next *Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return ended
	}
	next.Placement = s.spec.Placement
	s.apply(next)
	s.renew(time.Now())
	s.touch()
	s.noteSpec() // it may have moved while next was written
	s.registry.schedule.set(&s.entry.alarm, s.nextDeadline())
	return nil
}

// Renew renews the lease, as a heartbeat does, and returns when it runs out now. The error is an [EndedError].
func (s *Session) Renew() (expires time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return time.Time{}, ended
	}
	s.renew(time.Now())
	s.touch()
	return s.expiresAt, nil
}

func (s *Session) renew(now time.Time) { s.expiresAt = s.spec.expiry(now) }

// Stop makes the session take no more turns, under the given condition or [ConditionAdmin]. Calls that wait are sent away, calls in
// flight go on unless cancel is true. A session that is stopped already keeps its condition. The error is an [EndedError], or an
// [ErrNotWritten]: the session is stopped then, but may not be after a restart.
func (s *Session) Stop(condition string, cancel bool) error {
	if err := s.stopNow(cmp.Or(condition, ConditionAdmin), cancel); err != nil {
		return err
	}
	return s.saveState()
}

func (s *Session) stopNow(condition string, cancel bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return ended
	}
	s.stop(condition, cancel)
	return nil
}

// Rotate gives the session a new secret and returns it. The old one is unknown at once. The error is an [EndedError] or an
// [ErrNotWritten]; the secret is the old one then.
func (s *Session) Rotate() (secret string, err error) {
	s.updates.Lock()
	defer s.updates.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return "", ended
	}
	secret = newSecret()
	hash := hashSecret(secret)
	if err := s.saveSecret(hash); err != nil {
		return "", err
	}
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return "", ended
	}
	delete(r.bySecret, s.entry.secret)
	s.entry.secret = hash
	r.bySecret[hash] = s.entry
	return secret, nil
}

func (s *Session) matches(state State, stopCondition string, labels map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != "" && s.state != state || stopCondition != "" && s.stopCondition != stopCondition {
		return false
	}
	for key, value := range labels {
		if got, ok := s.spec.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}
