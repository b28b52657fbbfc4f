package upstream

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// idleTimeout is below the five seconds after which uvicorn, which serves most
	// inference engines, closes idle connections: a request must not meet that close.
	idleTimeout = 4 * time.Second

	// uploadGrace is how long after the end of an answer the rest of its request may
	// take, for the connection to be used again.
	uploadGrace = 50 * time.Millisecond
)

// transport is the connections to a replica at the addresses its name has now.
// There are never more of them than there were calls at once. Its methods may be
// called concurrently.
type transport interface {
	// roundTrip sends the request and returns the answer once its header is there.
	// The answer's body must be closed. A *DialError says that not one byte was
	// written, and nothing is ever sent again once one was.
	roundTrip(ctx context.Context, m *message) (*http.Response, error)
	// retire expects no more calls: connections close when they are idle.
	retire()
	// closeIdle closes the connections that are idle now, and those of the calls
	// in flight when these end.
	closeIdle()
}

// message is a request on its way to a replica.
type message struct {
	method   string
	target   *target
	path     string // as in [Request]
	query    string
	health   bool // it goes to the replica's health URL instead
	settings *settings
	header   http.Header                             // the harness's
	passes   func(name string, values []string) bool // what of it; nil is all
	own      [2]field                                // over that; without values there is none
	body     []byte
	// request is told once, when the body has been written and will not be needed
	// again; nil is not. It may be another goroutine that tells.
	request *Request
}

// url is where the message goes.
func (m *message) url() *url.URL {
	if m.health {
		return m.target.healthURL()
	}
	return m.target.url(m.path, m.query)
}

// newTransport speaks HTTP/1.1 itself with what it reaches directly and in the
// clear. Encryption, HTTP/2, proxies and names that are not ASCII are left to
// net/http.
func newTransport(r *replica) transport {
	t := &r.target
	direct := t.scheme == "http" && !strings.ContainsFunc(t.host, func(c rune) bool { return c == '%' || c > '~' })
	if direct {
		proxy, err := r.upstream.options.Proxy(&http.Request{Method: http.MethodPost, URL: t.url("/v1", ""), Header: make(http.Header)})
		direct = proxy == nil && err == nil
	}
	if direct {
		return newDirect(r)
	}
	return newStandard(r)
}
