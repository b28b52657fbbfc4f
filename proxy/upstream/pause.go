package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// PauseMode is what becomes of calls that come while an upstream is paused.
type PauseMode string

// The pause modes. The zero value is PauseHold.
const (
	PauseHold   PauseMode = "hold"   // they wait until the pause is over
	PauseReject PauseMode = "reject" // they get a [PausedError]
)

// PauseInflight is what becomes of the calls that are in flight when a pause begins.
type PauseInflight string

// What can become of calls in flight. The zero value is InflightKeep.
const (
	InflightKeep  PauseInflight = "keep"  // they go on
	InflightWait  PauseInflight = "wait"  // they go on, and are waited for
	InflightAbort PauseInflight = "abort" // they are cancelled with an [AbortedError], and waited for
)

// PauseEnd is what becomes of a pause that nobody ends.
type PauseEnd string

// How a pause ends by itself. The zero value is EndResume.
const (
	EndResume PauseEnd = "resume" // calls go on
	EndReject PauseEnd = "reject" // it becomes one of [PauseReject] that lasts until it is ended
)

// defaultPause is how long a pause lasts that names no time.
const defaultPause = 5 * time.Minute

// Pause says how to pause an upstream. The zero value holds calls for five minutes.
type Pause struct {
	Mode      PauseMode
	Inflight  PauseInflight
	Timeout   time.Duration // of the whole pause; 5 min when 0
	OnTimeout PauseEnd
}

// ErrPauseOver says that a pause was over before the calls in flight were.
var ErrPauseOver = errors.New("the pause was over before the calls in flight")

// PausedError says that nothing was tried, because the upstream is paused.
type PausedError struct {
	Upstream   string
	RetryAfter time.Duration // until the pause ends by itself; 0 is not known
}

// Error implements error.
func (e *PausedError) Error() string { return fmt.Sprintf("upstream %s is paused", e.Upstream) }

// AbortedError is the cause with which a pause cancels the calls in flight.
type AbortedError struct{ Upstream string }

// Error implements error.
func (e *AbortedError) Error() string {
	return fmt.Sprintf("upstream %s was paused and its calls in flight aborted", e.Upstream)
}

// pausing is a pause under way. It does not change: another mode is another one.
type pausing struct {
	mode  PauseMode
	since time.Time
	until time.Time // zero is until it is ended
	over  chan struct{}
	timer *time.Timer
}

// Pause pauses the upstream from now on, in place of a pause before this one. Unless
// calls in flight are kept it returns when there are none; held calls do not count.
// The error is then [ErrPauseOver], or the cause of ctx, which leaves the upstream
// paused.
func (u *Upstream) Pause(ctx context.Context, o Pause) error {
	timeout := cmp.Or(o.Timeout, defaultPause)
	now := time.Now()
	p := &pausing{mode: cmp.Or(o.Mode, PauseHold), since: now, until: now.Add(timeout), over: make(chan struct{})}
	u.mu.Lock()
	u.unpause(p)
	p.timer = time.AfterFunc(timeout, func() { u.pauseTimedOut(p, o.OnTimeout) })
	if o.Inflight == InflightAbort {
		for a := range u.calls {
			if a.caller != nil {
				a.caller.Cancel(&AbortedError{u.name})
			}
		}
	}
	u.mu.Unlock()
	if o.Inflight == InflightWait || o.Inflight == InflightAbort {
		return u.waitIdle(ctx, p)
	}
	return nil
}

// unpause ends the pause there is and begins next, if that is not nil. The lock
// must be held.
func (u *Upstream) unpause(next *pausing) {
	if old := u.paused; old != nil {
		if old.timer != nil {
			old.timer.Stop()
		}
		close(old.over)
	}
	u.paused = next
}

func (u *Upstream) pauseTimedOut(p *pausing, end PauseEnd) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.paused != p:
	case end == EndReject:
		u.unpause(&pausing{mode: PauseReject, since: p.since, over: make(chan struct{})})
	default:
		u.unpause(nil)
	}
}

// waitIdle waits until no call is in flight.
func (u *Upstream) waitIdle(ctx context.Context, p *pausing) error {
	u.mu.Lock()
	if len(u.calls) == 0 {
		u.mu.Unlock()
		return nil
	}
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	idle := u.idle
	u.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-p.over:
		return ErrPauseOver
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resume ends a pause and lets the held calls go, with this weight version for all
// replicas if it is not zero. An upstream that is not paused just gets the version.
func (u *Upstream) Resume(v registry.Version) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !v.IsZero() {
		for _, r := range u.replicas {
			r.version = v
		}
	}
	u.unpause(nil)
}

// Rejects returns a [PausedError] while the upstream rejects calls, else nil.
func (u *Upstream) Rejects() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rejects()
}

func (u *Upstream) rejects() error {
	p := u.paused
	if p == nil || p.mode != PauseReject {
		return nil
	}
	rejected := &PausedError{Upstream: u.name}
	if !p.until.IsZero() {
		rejected.RetryAfter = time.Until(p.until)
	}
	return rejected
}

// enter waits while calls are held and counts the call among those in flight.
func (u *Upstream) enter(ctx context.Context, a *answer) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.paused != nil {
		if err := u.rejects(); err != nil {
			return err
		}
		over := u.paused.over
		u.held++
		u.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
		u.mu.Lock()
		u.held--
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	u.calls[a] = struct{}{}
	return nil
}

// leave ends what enter began.
func (u *Upstream) leave(a *answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.calls, a)
	if len(u.calls) == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
}

// PauseStatus is what may be shown of a pause.
type PauseStatus struct {
	Mode  PauseMode `json:"mode"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // when it ends by itself; absent when it does not
	Held  int       `json:"held"`           // calls that wait for its end
}

// pauseStatus is nil when the upstream is not paused. The lock must be held.
func (u *Upstream) pauseStatus() *PauseStatus {
	p := u.paused
	if p == nil {
		return nil
	}
	return &PauseStatus{Mode: p.mode, Since: p.since.UTC(), Until: p.until.UTC(), Held: u.held}
}
