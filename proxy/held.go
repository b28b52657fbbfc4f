package proxy

import (
	"context"
	"io"
	"time"
)

// heldBytes is what a request's body has of the room for bodies. The zero value is
// of no gate, and holds nothing.
type heldBytes struct {
	gate   *bodyGate
	waited time.Duration
	most   int64 // that it may need

	// These are the gate's, with its lock, while the body waits or has a part.
	n     int64         // what it has
	asks  int64         // what it is to have, when it waits
	ready chan struct{} // closed when it has
	until time.Time     // when the patience with its sender is over; zero is never
}

func (h *heldBytes) isNew() bool               { return h.n == 0 }
func (h *heldBytes) isPart() bool              { return 0 < h.n && h.n < h.most }
func (h *heldBytes) isLast() bool              { return h.asks == h.most }
func (h *heldBytes) isSlow(now time.Time) bool { return !h.until.IsZero() && !now.Before(h.until) }
func (h *heldBytes) more() int64               { return h.asks - h.n }
func (h *heldBytes) needs() int64              { return h.most - h.n }

// begin is called before a body that may need so many bytes is read. Nothing is held
// without a gate.
func (h *heldBytes) begin(gate *bodyGate, most int64) {
	if gate != nil {
		h.gate, h.most = gate, min(most, gate.room)
	}
}

// grow waits until n bytes in all are held. A body larger than all the room holds all
// of it.
func (h *heldBytes) grow(ctx context.Context, n int64) error {
	n = min(n, h.most)
	if n <= h.n || h.gate.ask(h, n) {
		return nil
	}
	began := time.Now()
	timeout := time.NewTimer(h.gate.timeout - h.waited)
	defer timeout.Stop()
	var err error
	select {
	case <-h.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		err = errBytesBusy
	}
	h.waited += time.Since(began)
	if err != nil && h.gate.leave(h) {
		return err
	}
	return nil
}

// keep gives back all but n bytes. The body has been read.
func (h *heldBytes) keep(n int64) {
	if h.gate != nil {
		h.gate.keep(h, n)
	}
}

// release gives everything back. It may be called again, and from any goroutine.
func (h *heldBytes) release() { h.keep(0) }

// heldReader reads a body into what is held. More is taken only once what is held
// has come: if announcing a body were enough, a few uploads that stand still would
// hold up everyone.
type heldReader struct {
	r    io.Reader
	ctx  context.Context // of the reading of one body
	held *heldBytes
	size int64 // negative is unknown
	read int64
}

const (
	firstHeld = 64 << 10 // is what a body begins with
	growth    = 16       // how many times what has come the next part is, of a size that is known; else twice
)

func (h *heldReader) Read(b []byte) (int, error) {
	if h.read >= h.held.n {
		if err := h.held.grow(h.ctx, h.next()); err != nil {
			return 0, err
		}
	}
	if room := h.held.n - h.read; room > 0 {
		b = b[:min(int64(len(b)), room)]
	}
	n, err := h.r.Read(b)
	h.read += int64(n)
	return n, err
}

// next is how much is to be held in all when what is held is full.
func (h *heldReader) next() int64 {
	if h.size < 0 {
		return max(2*h.held.n, firstHeld)
	}
	return min(max(growth*h.held.n, firstHeld), h.size)
}
