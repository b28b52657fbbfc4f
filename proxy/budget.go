package proxy

import (
	"context"
	"sync/atomic"
	"time"
)

// The budgets of a call, as a harness is told which of them ran out.
const (
	budgetConnect   = "connect"
	budgetFirstByte = "first byte"
	budgetIdle      = "idle"
	budgetHeader    = "tunnel header"
)

// A budget ends a call when the upstream takes too long. It is one timer for
// all that is waited for one after the other.
type budget struct {
	timer   *time.Timer
	running atomic.Pointer[timeoutError] // what running out means now
}

// start gives what is waited for next its time.
func (b *budget) start(cancel context.CancelCauseFunc, next *timeoutError) {
	b.running.Store(next)
	if b.timer == nil {
		b.timer = time.AfterFunc(next.after, func() {
			if over := b.running.Load(); over != nil {
				cancel(over)
			}
		})
		return
	}
	b.timer.Reset(next.after)
}

// renew gives it the same time again.
func (b *budget) renew() { b.timer.Reset(b.running.Load().after) }

// stop ends the waiting, if it was begun.
func (b *budget) stop() {
	b.running.Store(nil)
	if b.timer != nil {
		b.timer.Stop()
	}
}
