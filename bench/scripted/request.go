package scripted

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Request is one call as the upstream received it. Its fields do not change once it is listed by
// [Upstream.Requests]; how the call ended is told by its methods.
type Request struct {
	Method   string
	Path     string // as sent, not unescaped
	RawQuery string
	Host     string
	Header   http.Header
	// Head is the request line and header fields exactly as received, order and case included. It is nil unless
	// the connection came from [Start].
	Head []byte
	// ContentLength is what the client announced, -1 when it sent the body chunked.
	ContentLength int64
	// Body is what was read of the body: all of it unless BodyErr says why not or the script answered early.
	Body    []byte
	BodyErr error
	// Script is the name of the script that was played.
	Script     string
	ReceivedAt time.Time
	RemoteAddr string

	done chan struct{}

	mu         sync.Mutex
	canceledAt time.Time
	sent       int64
}

// Done is closed when the upstream has finished with the request.
func (r *Request) Done() <-chan struct{} { return r.done }

// Canceled tells whether the client left, or the server was closed, before the answer was complete, and when that was
// noticed.
func (r *Request) Canceled() (at time.Time, canceled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.canceledAt, !r.canceledAt.IsZero()
}

// Sent is how many bytes of the answer's body were written so far.
func (r *Request) Sent() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}

func (r *Request) addSent(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += int64(n)
}

// noteCancel records that the client has left; the first time counts.
func (r *Request) noteCancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceledAt.IsZero() {
		r.canceledAt = time.Now()
	}
}

// Requests returns every request recorded so far, oldest first.
func (u *Upstream) Requests() []*Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*Request(nil), u.requests...)
}

// Last returns the newest request, nil when there was none.
func (u *Upstream) Last() *Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.requests) == 0 {
		return nil
	}
	return u.requests[len(u.requests)-1]
}

// Await waits until at least n requests were recorded and returns them all. Its error is the context's cause.
func (u *Upstream) Await(ctx context.Context, n int) ([]*Request, error) {
	for {
		u.mu.Lock()
		all, changed := append([]*Request(nil), u.requests...), u.changed
		u.mu.Unlock()
		if len(all) >= n {
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
}

// Forget drops the requests recorded so far.
func (u *Upstream) Forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = nil
}

// record lists r and wakes those who wait for it.
func (u *Upstream) record(r *Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, r)
	close(u.changed)
	u.changed = make(chan struct{})
}
