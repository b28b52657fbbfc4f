package proxy

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// heldBytes is what a request holds of MaxInflightBytes. Nothing is held
// without a cap.
type heldBytes struct {
	exchange *exchange
	n        int64
	until    time.Time // when waiting is over, from the first wait on
	given    atomic.Bool
}

// grow waits until n bytes in all are held. A body larger than all there is
// holds all of it.
func (h *heldBytes) grow(ctx context.Context, n int64) error {
	p := h.exchange.proxy
	if p.bodies == nil {
		return nil
	}
	n = min(n, p.options.MaxInflightBytes)
	more := n - h.n
	if more <= 0 {
		return nil
	}
	if !p.bodies.TryAcquire(more) {
		waited := time.Now()
		if h.until.IsZero() {
			h.until = waited.Add(p.options.AdmitTimeout)
		}
		ctx, cancel := context.WithDeadlineCause(ctx, h.until, errBytesBusy)
		defer cancel()
		err := p.bodies.Acquire(ctx, more)
		h.exchange.admission += time.Since(waited)
		if err != nil {
			return context.Cause(ctx)
		}
	}
	h.n = n
	return nil
}

// shrink gives back all but n bytes.
func (h *heldBytes) shrink(n int64) {
	if free := h.n - n; free > 0 {
		h.n = n
		h.exchange.proxy.bodies.Release(free)
	}
}

// release gives everything back. It may be called again, and from any goroutine
// once the body has been read.
func (h *heldBytes) release() {
	if !h.given.Swap(true) {
		h.shrink(0)
	}
}

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

// firstHeld is what a body begins with. It then takes the rest, or, when that is
// not known, doubles.
const firstHeld = 64 << 10

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
	switch {
	case h.size < 0:
		return max(2*h.held.n, firstHeld)
	case h.read == 0:
		return min(h.size, firstHeld)
	default:
		return h.size
	}
}
