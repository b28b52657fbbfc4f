package registry

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// gate lets a number of callers be inside at a time, and the others in as those leave, in the order they came. The zero value has
// no limit.
type gate struct {
	mu      sync.Mutex
	limit   int // 0 is none
	inside  int
	waiting list.List // of chan struct{}, closed to let its owner in
}

// enter returns nil when the caller is inside, and must then leave. It returns errBudgetOver when b is over, and the cause when
// ctx is done.
func (g *gate) enter(ctx context.Context, b *budget) error {
	g.mu.Lock()
	if g.waiting.Len() == 0 && g.free() {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	place := g.waiting.PushBack(admitted)
	g.mu.Unlock()

	select {
	case <-admitted:
		return nil
	case <-b.over():
		// Whoever is let in at this very moment goes as well: the budget says
		// only once that it is over.
		if !g.abandon(place) {
			g.leave()
		}
		return errBudgetOver
	case <-ctx.Done():
		if !g.abandon(place) {
			g.leave()
		}
		return context.Cause(ctx)
	}
}

// abandon gives up a place in the queue. It reports false if the owner had just been let in.
func (g *gate) abandon(place *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-place.Value.(chan struct{}):
		return false
	default:
		g.waiting.Remove(place)
		return true
	}
}

// leave frees the caller's place for the first in the queue.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.letIn()
}

// setLimit changes the limit, 0 is none. Callers that are inside stay there.
func (g *gate) setLimit(limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = limit
	g.letIn()
}

func (g *gate) free() bool { return g.limit == 0 || g.inside < g.limit }

func (g *gate) letIn() {
	for g.waiting.Len() > 0 && g.free() {
		g.inside++
		close(g.waiting.Remove(g.waiting.Front()).(chan struct{}))
	}
}

// budget is the time one call may wait to be admitted. Its timer is made by the first wait.
type budget struct {
	until time.Time
	timer *time.Timer
}

func (b *budget) left() time.Duration { return time.Until(b.until) }

// over returns a channel that receives once, when the budget is over.
func (b *budget) over() <-chan time.Time {
	if b.timer == nil {
		b.timer = time.NewTimer(b.left())
	}
	return b.timer.C
}

func (b *budget) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
