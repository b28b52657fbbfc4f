//go:build !race

package nonblock

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// Context gives ctx an end when the peer of c leaves, if c was accepted by a
// listener that Listen made: when it closes the connection, or the half that it
// sends on. It may be called once, before c is read from.
//
// That makes net/http's background read unnecessary, a goroutine that lives as
// long as a request only to learn the same. It reads one byte, and is content with
// none.
func Context(ctx context.Context, c net.Conn) context.Context {
	q, ok := c.(*conn)
	if !ok || q.leaves == nil {
		return ctx
	}
	ctx, q.leave.end = context.WithCancel(ctx)
	if q.watched = q.leaves.add(q); q.watched {
		ctx = context.WithValue(ctx, leaveKey{}, &q.leave)
	}
	return ctx
}

// AfterLeave is [context.AfterFunc] for a request's context. Where Context has ended
// that already when the peer leaves, there is no context made for it.
func AfterLeave(ctx context.Context, f func()) (stop func() bool) {
	if l, ok := ctx.Value(leaveKey{}).(*leave); ok {
		if stop, ok := l.after(f); ok {
			return stop
		}
	}
	return context.AfterFunc(ctx, f)
}

type leaveKey struct{}

// A leave is the end of a connection, by its peer or by Close.
type leave struct {
	end context.CancelFunc // nil if nobody asked for a context

	mu   sync.Mutex
	over bool
	then func() // what to do; nil is nothing
}

func (l *leave) happened() {
	l.mu.Lock()
	then := l.then
	l.over, l.then = true, nil
	l.mu.Unlock()
	if then != nil {
		go then()
	}
	if l.end != nil {
		l.end()
	}
}

// after has f called when it has happened, if there is nothing to do yet.
func (l *leave) after(f func()) (stop func() bool, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.then != nil {
		return nil, false
	}
	l.then = f
	return l.nothing, true
}

// nothing leaves nothing to do, and reports whether there was something.
func (l *leave) nothing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.then != nil
	l.then = nil
	return had
}

// leaves tells connections that their peers have left, all of them on one
// goroutine. It ends with the last of its users: a listener and its connections.
type leaves struct {
	epoll *os.File
	fd    int // of epoll

	mu    sync.Mutex
	users int
	last  uint64 // number that was given
	conns map[uint64]*conn
}

func watchLeaves() (*leaves, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // it is waited for in the runtime's poller
		return nil, errors.Join(os.NewSyscallError("setnonblock", err), syscall.Close(fd))
	}
	l := &leaves{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, users: 1, conns: make(map[uint64]*conn)}
	raw, err := l.epoll.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, l.epoll.Close())
	}
	go func() { _ = raw.Read(l.look) }() // until it is closed
	return l, nil
}

// look tells those whose peers have left, and is then to be called again when there
// are more.
func (l *leaves) look(uintptr) bool {
	var events [64]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(l.fd, events[:], 0)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		for _, e := range events[:max(n, 0)] {
			l.mu.Lock()
			q := l.conns[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32] //nolint:gosec // as add divided it
			l.mu.Unlock()
			if q != nil {
				q.leave.happened()
			}
		}
		if n < len(events) {
			return false
		}
	}
}

// add watches q and says whether it can.
func (l *leaves) add(q *conn) (ok bool) {
	l.mu.Lock()
	l.last++
	q.number = l.last
	l.conns[q.number] = q
	l.mu.Unlock()
	event := syscall.EpollEvent{
		Events: syscall.EPOLLRDHUP | syscall.EPOLLONESHOT,
		Fd:     int32(uint32(q.number)), Pad: int32(q.number >> 32), //nolint:gosec // two halves
	}
	var failed error
	err := q.raw.Control(func(fd uintptr) {
		failed = syscall.EpollCtl(l.fd, syscall.EPOLL_CTL_ADD, int(fd), &event) //nolint:gosec // a descriptor
	})
	return err == nil && failed == nil
}

// use takes a place among the users, and drop gives it back; number is that of a
// connection which has one.
func (l *leaves) use() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

func (l *leaves) drop(number uint64) {
	l.mu.Lock()
	delete(l.conns, number)
	l.users--
	left := l.users
	l.mu.Unlock()
	if left == 0 {
		_ = l.epoll.Close() // waits for look
	}
}
