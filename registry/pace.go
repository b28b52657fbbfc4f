package registry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// errBudgetOver says that a call has waited, or would have to wait, for too long.
var errBudgetOver = errors.New("admission timeout")

// pace lets callers through evenly spaced, in the order they came. The zero value does not hold anyone up.
type pace struct {
	limiter atomic.Pointer[rate.Limiter] // nil is no rate
}

// set changes the rate, 0 is none. Callers that wait already keep their times.
func (p *pace) set(perSecond float64) {
	limiter := p.limiter.Load()
	switch {
	case perSecond == 0:
		p.limiter.Store(nil)
	case limiter == nil:
		// A burst of one, because a full bucket would let through at once what the rate is there to spread.
		p.limiter.Store(rate.NewLimiter(rate.Limit(perSecond), 1))
	default:
		limiter.SetLimit(rate.Limit(perSecond))
	}
}

// wait returns when it is the caller's turn. If that is after b is over it returns errBudgetOver at once, with the time until then.
// It returns the cause when ctx is done.
func (p *pace) wait(ctx context.Context, b *budget) (time.Duration, error) {
	limiter := p.limiter.Load()
	if limiter == nil {
		return 0, nil
	}
	now := time.Now()
	turn := limiter.ReserveN(now, 1)
	delay := turn.DelayFrom(now)
	if delay == 0 {
		return 0, nil
	}
	if delay > b.left() {
		turn.CancelAt(now)
		return delay, errBudgetOver
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil
	case <-ctx.Done():
		turn.Cancel()
		return 0, context.Cause(ctx)
	}
}
