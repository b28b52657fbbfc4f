package upstream

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// refusal is the body of an answer that refuses a request which has not been written
// to its end. The replica may go on waiting for the rest, and that may never come: it
// has stopped reading, or net/http has stopped sending, which over HTTP/2 it does when
// it sees such a status, without ending the stream. What the answer has said by the
// time it breaks, or when it has been silent for refusalGrace, is therefore all of it.
type refusal struct {
	io.ReadCloser
	ctx  context.Context // the call's
	sent sending
	over atomic.Bool // it has been silent for too long
}

// sending is a request that is being sent.
type sending interface {
	// isWritten reports whether all of it was written.
	isWritten() bool
}

// refusable gives the answer a body that ends even if its request does not.
func refusable(ctx context.Context, res *http.Response, s sending) *http.Response {
	if res.StatusCode >= http.StatusMultipleChoices && !s.isWritten() {
		res.Body = &refusal{ReadCloser: res.Body, ctx: ctx, sent: s}
	}
	return res
}

// Read implements io.Reader.
func (r *refusal) Read(p []byte) (int, error) {
	silent := time.AfterFunc(refusalGrace, func() {
		if !r.sent.isWritten() {
			r.over.Store(true)
			_ = r.Close() // the read ends
		}
	})
	n, err := r.ReadCloser.Read(p)
	silent.Stop()
	if err != nil && r.ctx.Err() == nil && (r.over.Load() || !r.sent.isWritten()) {
		err = io.EOF
	}
	return n, err
}
