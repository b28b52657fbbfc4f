package proxy

import (
	"bytes"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
)

// An outlet is what a call that may be retried writes its answer to: its client,
// unless that has gone before the answer began. Then the answer is kept for the
// retry that takes the call over, and the call writes on as if to its client.
type outlet struct {
	call   *call
	client http.ResponseWriter

	holders  int           // see attempts.let; attempts.mu guards these four
	reserved int64         // bytes
	unwanted bool          // no retry can come any more
	room     chan struct{} // see attempts.reserve; nil if nobody waits

	direct atomic.Bool // the answer goes to the client; set once, with mu held

	mu      sync.Mutex
	keeping bool // the answer is kept; never with direct
	status  int  // 0 is nothing yet
	header  http.Header
	body    [][]byte      // what was not taken yet
	end     *keptEnd      // once the call has answered
	changed chan struct{} // closed by the next change; nil if nobody waits
}

// keptEnd is how a kept answer ended.
type keptEnd struct {
	broken  bool // it is not whole
	turn    *registry.Turn
	outcome metrics.Outcome
	end     string
	err     error

	upstream, replica, upstreamRequestID string
}

// Header implements http.ResponseWriter.
func (o *outlet) Header() http.Header { return o.client.Header() }

// WriteHeader implements http.ResponseWriter.
func (o *outlet) WriteHeader(status int) {
	if o.begin(status) {
		o.client.WriteHeader(status)
	}
}

// begin decides where the answer goes, if that is not decided yet, and reports
// whether it is the client.
func (o *outlet) begin(status int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.keeping && o.call.exchange.request.Context().Err() == nil {
		o.direct.Store(true)
		return true
	}
	o.keeping = true
	o.status, o.header = status, o.Header().Clone()
	o.change()
	return false
}

// Write implements http.ResponseWriter.
func (o *outlet) Write(b []byte) (int, error) {
	if o.direct.Load() {
		return o.client.Write(b)
	}
	wanted, err := o.reserve(len(b))
	if err != nil {
		return 0, err
	}
	if wanted && len(b) > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.body = append(o.body, bytes.Clone(b))
		o.change()
	}
	return len(b), nil
}

// reserve waits until n bytes have room. A retry that reads is waited for as long
// as any client.
func (o *outlet) reserve(n int) (wanted bool, err error) {
	late := time.NewTimer(o.call.proxy.options.WriteTimeout)
	defer late.Stop()
	for {
		wanted, room, err := o.call.proxy.attempts.reserve(o, n)
		if room == nil {
			return wanted, err
		}
		select {
		case <-room:
		case <-late.C:
			return false, errKeptTooMuch
		}
	}
}

func (o *outlet) makeRoom() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// FlushError is found by http.ResponseController.
func (o *outlet) FlushError() error {
	if o.direct.Load() {
		return http.NewResponseController(o.client).Flush()
	}
	return nil
}

// Unwrap lets http.ResponseController find the deadlines of the client.
func (o *outlet) Unwrap() http.ResponseWriter { return o.client }

// keep makes the answer one that is kept, unless it has begun.
func (o *outlet) keep() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.direct.Load() {
		o.keeping = true
	}
	return o.keeping
}

// kept says whether the answer is kept.
func (o *outlet) kept() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.keeping
}

// close says that no more of the answer comes.
func (o *outlet) close(end *keptEnd) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = end
	o.change()
}

func (o *outlet) change() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// part is what there is of a kept answer beyond what was taken.
type part struct {
	status int // 0 is nothing yet
	header http.Header
	body   [][]byte
	end    *keptEnd        // nil is more to come
	more   <-chan struct{} // closed when there is more than this
}

// take takes what there is.
func (o *outlet) take() part {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := part{status: o.status, header: o.header, body: o.body, end: o.end}
	if o.status != 0 {
		o.body = nil
	}
	if o.end == nil {
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		p.more = o.changed
	}
	return p
}
