package proxy

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A heldAnswer is the answer of a call that is not the client's yet.
type heldAnswer struct {
	header http.Header
	status int
	body   []byte
	begun  func(*heldAnswer) // called when it has a status
}

// Header implements http.ResponseWriter.
func (h *heldAnswer) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *heldAnswer) WriteHeader(status int) {
	h.status = status
	h.begun(h)
}

// Write implements http.ResponseWriter.
func (h *heldAnswer) Write(b []byte) (int, error) {
	h.body = append(h.body, b...)
	return len(b), nil
}

// FlushError is found by http.ResponseController.
func (h *heldAnswer) FlushError() error { return nil }

func (h *heldAnswer) copyHeader(to http.Header) { maps.Copy(to, h.header) }

// A vigil sends keepalives on a stream whose events are all held. Between begin
// and stop the client's connection is its own.
type vigil struct {
	exchange *exchange

	mu    sync.Mutex
	timer *time.Timer // nil before begin
	over  bool
	head  http.Header // that the stream gets
}

// begin lets keepalives out from the first stream of the upstream on. Until there is
// one it may answer with an error, for which the status must be free.
func (v *vigil) begin(answer *heldAnswer) {
	every := v.exchange.proxy.options.Keepalive
	if answer.status != http.StatusOK || !strings.HasPrefix(answer.header.Get("Content-Type"), "text/event-stream") || every <= 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.timer == nil && !v.over {
		v.head = answer.header.Clone()
		v.timer = time.AfterFunc(every, v.tick)
	}
}

func (v *vigil) tick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	x := v.exchange
	if x.status == 0 {
		maps.Copy(x.writer.Header(), v.head)
		x.begin(http.StatusOK)
	}
	if x.write([]byte(keepalive)) == nil { // a client that has gone ends the call by itself
		v.timer.Reset(x.proxy.options.Keepalive)
	}
}

// stop gives the connection back.
func (v *vigil) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	if v.timer != nil {
		v.timer.Stop()
	}
}
