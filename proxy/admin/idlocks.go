package admin

import (
	"context"
	"slices"
	"sync"
)

// idLocks makes registrations of one id take turns, from the search for a place
// to the last byte of the answer. Without it a retry could be answered with a
// session that the first attempt, whose client has left, is about to undo; and
// of two registrations of one id the loser could give back the winner's place.
type idLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed on release
}

// lock holds all ids, or none when ctx ends first. It takes them in order, so
// that overlapping batches cannot wait for each other.
func (l *idLocks) lock(ctx context.Context, ids []string) (unlock func(), err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	for i, id := range ids {
		if err := l.lockOne(ctx, id); err != nil {
			l.unlock(ids[:i])
			return nil, err
		}
	}
	return func() { l.unlock(ids) }, nil
}

func (l *idLocks) lockOne(ctx context.Context, id string) error {
	for {
		l.mu.Lock()
		released, busy := l.held[id]
		if !busy {
			if l.held == nil {
				l.held = make(map[string]chan struct{})
			}
			l.held[id] = make(chan struct{})
		}
		l.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *idLocks) unlock(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		close(l.held[id])
		delete(l.held, id)
	}
}
