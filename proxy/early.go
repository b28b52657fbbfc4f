package proxy

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// An earlyWriter is the client of a server whose public side gives up a request
// that has no header of an answer after so long. From three quarters of that on
// it begins the answer by itself, with a 200 and what a reader skips: comments
// of a stream, spaces before JSON. What the call then answers with goes on from
// there; an answer that is no 200 cannot, and is told inside of it.
//
// The call's goroutine writes, and so does the timer until the call's own answer
// begins; mu is between them.
type earlyWriter struct {
	client  http.ResponseWriter
	control http.ResponseController // of client
	header  http.Header             // of the call's answer

	limit, every, writeTimeout time.Duration

	mu     sync.Mutex
	timer  *time.Timer // nil while nothing is waited for
	stream bool
	state  earlyState
}

type earlyState int

const (
	earlyNotYet  earlyState = iota // no answer has begun
	earlyBegun                     // this writer has begun it
	earlyMet                       // and the call's own goes on from there
	earlyMissed                    // and the call's own is another
	earlyNoNeed                    // the call's own has begun it
	earlyTrouble                   // the client does not take it
)

// awaitEarly lets answers begin early where the server has such a limit.
func (x *exchange) awaitEarly() {
	o := &x.proxy.options
	if o.HeaderLimit <= 0 {
		return
	}
	x.early = &earlyWriter{
		client: x.writer, control: x.control, header: x.writer.Header().Clone(),
		limit: o.HeaderLimit, every: o.Keepalive, writeTimeout: o.WriteTimeout,
	}
	x.writer, x.control = x.early, *http.NewResponseController(x.early)
}

// wait starts the clock: the request has been read, for which it waited so long after
// it had arrived.
func (e *earlyWriter) wait(stream bool, waited time.Duration) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream = stream
	e.timer = time.AfterFunc(e.limit*3/4-waited, e.tick)
}

func (e *earlyWriter) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer == nil {
		return
	}
	mark := " "
	if e.stream {
		mark = keepalive
	}
	if e.state == earlyNotYet {
		e.state = earlyBegun
		e.begin()
	}
	if err := e.send([]byte(mark)); err != nil {
		e.state = earlyTrouble
		return
	}
	if e.every > 0 {
		e.timer.Reset(e.every)
	}
}

func (e *earlyWriter) begin() {
	h := e.client.Header()
	h.Set("Content-Type", "application/json")
	if e.stream {
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		streamHeader(h)
	}
	e.client.WriteHeader(http.StatusOK)
}

func (e *earlyWriter) send(b []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.writeTimeout)) // as in renewWriteDeadline
	if _, err := e.client.Write(b); err != nil {
		return err
	}
	return e.control.Flush()
}

// stop leaves the client to the call's goroutine, and reports whether the answer
// has begun early.
func (e *earlyWriter) stop() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.halt()
	return e.state != earlyNotYet && e.state != earlyNoNeed
}

func (e *earlyWriter) halt() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// Header implements http.ResponseWriter.
func (e *earlyWriter) Header() http.Header { return e.header }

// WriteHeader implements http.ResponseWriter.
func (e *earlyWriter) WriteHeader(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head(status)
}

func (e *earlyWriter) head(status int) {
	e.halt()
	if e.state == earlyNotYet {
		e.state = earlyNoNeed
		h := e.client.Header()
		clear(h)
		maps.Copy(h, e.header)
		e.client.WriteHeader(status)
		return
	}
	if e.state == earlyBegun {
		e.state = earlyMissed
		if isStream := strings.HasPrefix(e.header.Get("Content-Type"), "text/event-stream"); status == http.StatusOK && isStream == e.stream {
			e.state = earlyMet
		}
	}
}

// Write implements http.ResponseWriter.
func (e *earlyWriter) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == earlyNotYet || e.state == earlyBegun {
		e.head(http.StatusOK)
	}
	if e.state == earlyMissed {
		return len(b), nil // it would be taken for a part of the other answer
	}
	return e.client.Write(b)
}

// FlushError is found by http.ResponseController.
func (e *earlyWriter) FlushError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.control.Flush()
}

// Unwrap lets http.ResponseController find the deadlines of the client.
func (e *earlyWriter) Unwrap() http.ResponseWriter { return e.client }

// tellEarly tells an error inside of a 200 that has begun already, in which the
// connection then breaks: it must not look like an answer.
func (x *exchange) tellEarly(e dialect.Error) {
	body := x.dialect.ErrorBody(e)
	if x.early.stream {
		body = x.dialect.ErrorEvent(e)
	}
	x.broken = true
	if x.early.send(body) == nil {
		x.bytesOut += int64(len(body))
	}
}

// isBegun says that the answer has begun early. One that is kept for a retry has
// not, whatever the client that has gone was told.
func (x *exchange) isBegun() bool {
	return x.early.stop() && (x.outlet == nil || !x.outlet.kept())
}

// endEarly makes the record say what the client got.
func (x *exchange) endEarly() {
	if x.early.stop() {
		x.status = http.StatusOK
		x.broken = x.broken || x.early.state == earlyMissed
	}
}
