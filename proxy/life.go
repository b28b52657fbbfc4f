package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A life is the context of a call. It carries no values, and its error is the cause
// that it was cancelled with, which is what [context.Cause] gives then too. Package
// context would make several of them for each call; this one is a part of the call,
// and whoever has something to do at its end need not be a context to be told.
type life struct {
	mu    sync.Mutex
	cause error
	done  chan struct{} // made when it is asked for
	after []func()      // what to do at the end; nil is room for another
	room  [2]func()     // of after, which is seldom more
}

var _ context.Context = (*life)(nil)

// Deadline implements context.Context.
func (*life) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value implements context.Context.
func (*life) Value(any) any { return nil }

// Err implements context.Context.
func (l *life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.cause != nil {
			close(l.done)
		}
	}
	return l.done
}

// AfterFunc is found by [context.AfterFunc] and by the contexts made of this one. stop
// must not be called again.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		go f()
		return func() bool { return false }
	}
	at := slices.IndexFunc(l.after, func(f func()) bool { return f == nil })
	if at < 0 {
		if l.after == nil {
			l.after = l.room[:0]
		}
		at = len(l.after)
		l.after = append(l.after, f)
	}
	l.after[at] = f
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cause != nil {
			return false
		}
		l.after[at] = nil
		return true
	}
}

// cancel ends it with this cause, [context.Canceled] when that is nil. Only the first
// time counts.
func (l *life) cancel(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.done != nil {
		close(l.done)
	}
	for _, f := range l.after {
		if f != nil {
			go f()
		}
	}
}
