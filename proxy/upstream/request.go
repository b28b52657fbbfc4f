package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// Request is one call to be sent.
type Request struct {
	Method string
	// Path is the canonical route in its escaped form: /v1/chat/completions.
	Path string
	// RawQuery goes up as it is.
	RawQuery string
	// Header is the harness's, by canonical names. It must not change until Written.
	// Credentials in it do not go up.
	Header http.Header
	// Passes says what of Header goes up. When nil all does.
	Passes func(name string, values []string) bool
	// ID goes up as X-Request-Id, in place of the harness's; empty is none.
	ID string
	// Body is sent as it is. It must not change while the call runs.
	Body []byte
	// Caller, when not nil, is told how the call gets on.
	Caller Caller
	// Affinity keeps calls together on one replica; empty spreads them.
	Affinity string
	// SessionHeader, when not empty, names the header that carries Affinity.
	SessionHeader string

	values [2]string // of the header
}

// Caller is whoever makes a call.
type Caller interface {
	// Dispatching is called once before the call is sent: when no pause holds it
	// any more.
	Dispatching()
	// Written is called once when Body has been written and will not be sent again,
	// which is when Send lets go of it: the call may last for minutes from then on.
	// It is never called for a call that fails before. It may be called on another
	// goroutine, and after Send has returned.
	Written()
	// Cancel ends the context that was given to Send, as a pause that aborts calls
	// does.
	Cancel(cause error)
}

// Response is a replica's answer. Its Body must be closed, which frees the call's
// place on the replica; closing it again does nothing.
type Response struct {
	*http.Response
	// Replica is the name of the replica that answered.
	Replica string
	// Version is the replica's weight version when the call was sent.
	Version registry.Version
	replica *replica
}

// CurrentVersion gives the replica's weight version as it is now.
func (r *Response) CurrentVersion() registry.Version { return r.replica.currentVersion() }

// Send sends the call to a replica and returns when the header of the answer is
// there. It moves on to another replica as long as nothing was written. There is
// no time limit but that of connecting: ctx ends the call, body included, and its
// cause is then the error. Otherwise the error is an *[UnavailableError], a
// *[PausedError], a *[DialError], or what broke the call after it was sent.
//
// While a pause holds calls, Send waits for its end.
func (u *Upstream) Send(ctx context.Context, r *Request) (*Response, error) {
	a := &answer{caller: r.Caller}
	if err := u.enter(ctx, a); err != nil {
		return nil, err
	}
	if r.Caller != nil {
		r.Caller.Dispatching()
	}
	res, err := u.send(ctx, r, a)
	if err != nil {
		u.leave(a)
	}
	return res, err
}

// send tries one replica after the other.
func (u *Upstream) send(ctx context.Context, r *Request, a *answer) (*Response, error) {
	var tried []*replica
	var last *DialError
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p, wait, ok := u.pick(r.Affinity, tried)
		switch {
		case ok:
		case last != nil:
			return nil, last
		default:
			return nil, &UnavailableError{Upstream: u.name, RetryAfter: wait}
		}
		res, err := p.send(ctx, r, a)
		if last, ok = errors.AsType[*DialError](err); !ok {
			return res, err
		}
		tried = append(tried, p.replica)
	}
}

// send makes the call on the replica. Whenever it fails it has given the place
// back.
func (p place) send(ctx context.Context, r *Request, a *answer) (*Response, error) {
	m := &a.message
	*m = message{
		method: r.Method, target: &p.target, path: r.Path, query: r.RawQuery, settings: p.settings,
		header: r.Header, passes: r.Passes, body: r.Body,
	}
	if r.ID != "" {
		r.values[0] = r.ID
		m.own[0] = field{"X-Request-Id", r.values[0:1:1]}
	}
	if r.SessionHeader != "" && r.Affinity != "" {
		r.values[1] = r.Affinity
		m.own[1] = field{http.CanonicalHeaderKey(r.SessionHeader), r.values[1:2:2]}
	}
	if r.Caller != nil {
		m.request = r
	}
	res, err := p.transport.roundTrip(ctx, m)
	code := ""
	switch {
	case err == nil:
		code = statusText(res.StatusCode)
		p.observe(func(h *health, now time.Time) bool {
			back := p.trial && h.dialed(now) // on a connection that was there before
			if res.StatusCode >= http.StatusInternalServerError {
				return h.failed(now, "status "+code) || back
			}
			h.answered()
			return back
		})
	case ctx.Err() != nil:
		code, err = CodeCanceled, context.Cause(ctx)
	case isDialError(err):
		code = CodeDialError
	default:
		code = CodeConnectionError
		p.observe(func(h *health, now time.Time) bool { return h.failed(now, err.Error()) })
		err = fmt.Errorf("call replica %s: %w", p.target.replica, err)
	}
	if p.trial {
		p.observe(func(h *health, _ time.Time) bool { h.trial = false; return false })
	}
	if done := p.upstream.options.Observer.Done; done != nil {
		done(p.upstream.name, code)
	}
	if err != nil {
		p.release()
		return nil, err
	}
	a.ReadCloser, a.place = res.Body, p
	res.Body = a
	a.response = Response{Response: res, Replica: p.target.replica, Version: p.version, replica: p.replica}
	return &a.response, nil
}

// statusText is a status in digits.
func statusText(code int) string {
	if code == http.StatusOK {
		return "200" // without memory of its own
	}
	return strconv.Itoa(code)
}

// written lets the header and the body go.
func (r *Request) written() {
	r.Header, r.Passes, r.Body = nil, nil, nil
	r.Caller.Written()
}

// answer is a call in flight with what it needs once it is answered, in one piece
// of memory. It is the body of the answer, and frees the call's place when it is
// closed.
type answer struct {
	io.ReadCloser
	caller   Caller // nil when nobody can abort the call
	place    place
	message  message
	response Response
	closed   atomic.Bool
}

// Close implements io.Closer.
func (a *answer) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	defer a.place.upstream.leave(a)
	defer a.place.release()
	return a.ReadCloser.Close()
}

func isDialError(err error) bool {
	_, ok := errors.AsType[*DialError](err)
	return ok
}
