package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// errBodySent means that a request's body was let go, and is wanted again.
var errBodySent = errors.New("the request was already written")

// standardCall is what one round trip of net/http needs, in one piece of memory.
// It is the answer's body.
type standardCall struct {
	io.ReadCloser // net/http's
	message       *message
	trace         httptrace.ClientTrace
	route         route
	conn          *standardConn
	before        int64 // bytes written to conn before this call
	reused        bool
	multiplexed   bool          // HTTP/2
	shares        *standardConn // conn, if that is multiplexed and this call one of those on it
	ended         atomic.Bool

	mu     sync.Mutex // guards what follows
	reader *bytes.Reader
	wrote  bool // the body, on the connection that was got last
	// answered is set when the answer has begun. Over HTTP/2 it may before all of the
	// body is sent, and until then the replica may ask for that again on another
	// connection.
	answered bool
	sent     bool
}

// roundTrip sends the request again as long as all it meets are connections that
// the replica closed while they were idle. net/http does most of that, but gives
// up when it learns of the close between taking the connection and writing.
func (s *standard) roundTrip(ctx context.Context, m *message) (*http.Response, error) {
	s.enter()
	c := &standardCall{message: m, route: route{transport: s}}
	c.trace = httptrace.ClientTrace{GetConn: c.getConn, GotConn: c.gotConn, WroteRequest: c.wroteRequest}
	c.ReadCloser = http.NoBody
	res, err := c.attempts(httptrace.WithClientTrace(context.WithValue(ctx, routeKey{}, &c.route), &c.trace))
	c.route.settle()
	if err != nil {
		_ = c.Close() // frees the place, there is no more to it
		switch {
		case ctx.Err() != nil || isDialError(err):
		case c.conn == nil: // a proxy's handshake, or a header that cannot be sent: perhaps not the replica's fault
			err = &DialError{Replica: s.replica.target.replica, Err: err}
		case c.unused():
			err = s.replica.dialFailed(err)
		}
		return nil, err
	}
	c.done(&c.answered)
	c.ReadCloser = res.Body
	res.Body = c
	return refusable(ctx, res, c), nil
}

func (c *standardCall) attempts(ctx context.Context) (*http.Response, error) {
	m := c.message
	for {
		req := (&http.Request{Method: m.method, URL: m.url(), Host: m.settings.host, Header: m.netHeader()}).WithContext(ctx)
		if len(m.body) > 0 {
			// With GetBody net/http may send it again on another connection when
			// nothing was written.
			req.ContentLength = int64(len(m.body))
			req.GetBody = c.newBody
			req.Body, _ = c.newBody()
		}
		c.conn, c.reused = nil, false
		res, err := c.route.transport.transport.RoundTrip(req)
		if err == nil || ctx.Err() != nil || !c.reused || !c.unused() {
			return res, err
		}
	}
}

// newBody reads the body from its start. net/http knows the type to be in memory,
// and so sends header and body together.
func (c *standardCall) newBody() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		return nil, errBodySent
	}
	c.reader = bytes.NewReader(c.message.body)
	return io.NopCloser(c.reader), nil
}

func (c *standardCall) getConn(string) { c.route.settled.Store(false) }

func (c *standardCall) gotConn(info httptrace.GotConnInfo) {
	c.route.settle()
	c.leaveConn()
	inner := info.Conn
	c.multiplexed = false
	if t, ok := inner.(*tls.Conn); ok {
		c.multiplexed = t.ConnectionState().NegotiatedProtocol == "h2"
		inner = t.NetConn()
	}
	if t, ok := inner.(*tls.Conn); ok { // of the proxy
		inner = t.NetConn()
	}
	c.conn, _ = inner.(*standardConn)
	c.reused = info.Reused
	if c.conn != nil {
		c.before = c.conn.written.Load()
		if c.multiplexed {
			c.conn.share()
			c.shares = c.conn
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote = false
}

// leaveConn leaves a connection to the calls that share it.
func (c *standardCall) leaveConn() {
	if c.shares != nil {
		c.shares.unshare()
		c.shares = nil
	}
}

func (c *standardCall) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil {
		c.done(&c.wrote)
	}
}

// done notes that the body was written, or that the answer has begun. When nobody
// reads the body any more it drops it, which net/http would keep as long as the call
// lasts.
func (c *standardCall) done(what *bool) {
	c.mu.Lock()
	*what = true
	if c.message.request == nil || c.sent || !c.wrote || c.multiplexed && !c.answered {
		c.mu.Unlock()
		return
	}
	c.sent = true
	if c.reader != nil {
		c.reader.Reset(nil)
	}
	c.message.body = nil
	c.mu.Unlock()
	c.message.request.written()
}

// isWritten implements sending.
func (c *standardCall) isWritten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrote
}

// unused reports whether the call failed because its connection was closed before
// anything was written to it. It may be asked once the call has failed.
func (c *standardCall) unused() bool {
	return c.conn != nil && c.conn.closed.Load() && c.conn.written.Load() == c.before
}

// Close implements io.Closer.
func (c *standardCall) Close() error {
	if c.ended.Swap(true) {
		return nil
	}
	defer c.route.transport.leave()
	defer c.leaveConn()
	return c.ReadCloser.Close()
}
