package frp

import (
	"cmp"
	"context"
	"sync"
)

const defaultLogins = 8

// Logins bounds how many clients log in at one server at the same time, so
// that a server that comes back is not buried by all its clients. It is safe
// for concurrent use; the nil Logins does not bound.
type Logins struct {
	limit int

	mu    sync.Mutex
	slots map[string]chan struct{} // by server
}

// NewLogins allows so many logins at a time for each server, 8 when zero.
func NewLogins(limit int) *Logins {
	return &Logins{limit: cmp.Or(limit, defaultLogins), slots: make(map[string]chan struct{})}
}

// acquire waits for a turn at the server and returns how to give it back.
func (l *Logins) acquire(ctx context.Context, server string) (release func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	l.mu.Lock()
	slots, ok := l.slots[server]
	if !ok {
		slots = make(chan struct{}, l.limit)
		l.slots[server] = slots
	}
	l.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
