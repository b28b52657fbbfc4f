package registry

import (
	"context"
	"time"
)

// Run makes time pass: leases run out, durations end, traces and tombstones go. It returns nil when ctx is done.
func (r *Registry) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.schedule.wake:
		}
		timer.Reset(r.attendDue(ctx))
	}
}

// attendDue looks at every entry whose alarm is due and returns how long it is until the next one.
func (r *Registry) attendDue(ctx context.Context) time.Duration {
	for {
		due, wait := r.schedule.next(time.Now())
		if due == nil {
			return wait
		}
		if again := r.attend(ctx, due.owner); !again.IsZero() {
			r.schedule.set(&due.owner.alarm, again)
		}
	}
}

// attend does what is due for an entry and returns when to look at it again, the zero time for never.
func (r *Registry) attend(ctx context.Context, e *entry) time.Time {
	now := time.Now()
	r.mu.RLock()
	session, stone := e.session, e.stone
	r.mu.RUnlock()
	switch {
	case stone == nil:
		again, expired := session.attend(now)
		if expired {
			r.bury(ctx, e, session)
		}
		return again
	case session != nil:
		if due := stone.summary.EndedAt.Add(r.options.TraceRetention); now.Before(due) {
			return due
		}
		r.dropTrace(e)
	}
	if now.Before(stone.until) {
		return stone.until
	}
	r.forget(e)
	return time.Time{}
}
