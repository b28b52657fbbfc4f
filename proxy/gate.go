package proxy

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// A bodyGate is the room that there is for request bodies. A body takes its room in
// parts while it is read, because what is only announced may never come.
//
// Bodies that have a part and need more could wait for each other. So a part is given
// only if all that are being read could still be read to their ends, one after the
// other (Dijkstra's banker), where one of unknown length counts as the longest that
// it may be. What a body is given last, all that it may need, can be had whenever it is
// free: it comes back without anything being taken.
//
// Nor may a sender that is slow keep others waiting for what it may still send: when
// it has not filled a part for long, the rest of it is not reckoned with until it asks.
type bodyGate struct {
	room     int64
	timeout  time.Duration // for all waiting of one body
	patience time.Duration // with the sender of a part

	mu      sync.Mutex
	free    int64
	growing []*heldBytes // bodies that have a part, by what they may need besides
	waiting []*heldBytes // those of them that wait for more, then those that have nothing; each in order
	again   *time.Timer  // looks at waiting when the patience with a sender is over
}

// newBodyGate makes one that is open.
func newBodyGate(room int64, timeout time.Duration) *bodyGate {
	g := &bodyGate{room: room, timeout: timeout, patience: timeout / 8, free: room}
	g.again = time.AfterFunc(g.patience, g.lookAgain)
	g.again.Stop()
	return g
}

// ask gives h room for n bytes in all, or has it wait for that.
func (g *bodyGate) ask(h *heldBytes, n int64) (given bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.asks = n
	at := len(g.waiting)
	if h.isPart() {
		if !h.isSlow(time.Now()) {
			h.until = time.Time{}
		}
		if first := slices.IndexFunc(g.waiting, (*heldBytes).isNew); first >= 0 {
			at = first
		}
	}
	if at == 0 && h.more() <= g.free && (h.isLast() || g.safe(h)) {
		g.give(h)
		return true
	}
	h.ready = make(chan struct{})
	g.waiting = slices.Insert(g.waiting, at, h)
	g.serve()
	return h.n == n
}

// leave ends h's waiting, and reports whether it had to.
func (g *bodyGate) leave(h *heldBytes) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, h)
	if at < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	g.serve()
	return true
}

// keep takes back all of what h has but n bytes. It will need no more.
func (g *bodyGate) keep(h *heldBytes, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.isPart() {
		g.drop(h)
	}
	n = min(n, h.n) // a body may be larger than all the room
	g.free += h.n - n
	h.n, h.most = n, n
	g.serve()
}

func (g *bodyGate) drop(h *heldBytes) {
	at := slices.Index(g.growing, h)
	g.growing = slices.Delete(g.growing, at, at+1)
}

func (g *bodyGate) lookAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serve()
}

// serve gives to those that wait, in order. While one waits for room, bodies that have
// nothing yet get nothing; while one that has a part waits for others to be read, no
// further one begins that would have to grow.
func (g *bodyGate) serve() {
	var full, unsafe bool
	small := int64(math.MaxInt64) // bodies that have nothing and would have to grow begin if they may need less
	for i := 0; i < len(g.waiting); {
		h := g.waiting[i]
		begins := h.isNew() && !h.isLast()
		switch {
		case full && h.isNew():
			i = len(g.waiting)
		case begins && h.most >= small:
			i++
		case !h.isLast() && !g.safe(h):
			unsafe = true
			if begins {
				small = h.most
			} else if !h.isSlow(time.Now()) {
				small = 0
			}
			i++
		case h.more() > g.free:
			full = true
			i++
		default:
			g.waiting = slices.Delete(g.waiting, i, i+1)
			g.give(h)
			close(h.ready)
		}
	}
	if unsafe {
		g.await()
	}
}

func (g *bodyGate) give(h *heldBytes) {
	if h.isPart() {
		g.drop(h)
	}
	g.free -= h.more()
	h.n = h.asks
	if h.isPart() {
		h.until = time.Now().Add(g.patience)
		at, _ := slices.BinarySearchFunc(g.growing, h, func(a, b *heldBytes) int { return cmp.Compare(a.needs(), b.needs()) })
		g.growing = slices.Insert(g.growing, at, h)
	}
}

// safe says whether all bodies that have a part could be read to their ends if h was
// given what it asks for: each with what is left and what those before it give back.
func (g *bodyGate) safe(h *heldBytes) bool {
	now, left := time.Now(), g.room-h.asks
	for _, b := range g.growing {
		if b != h && !b.isSlow(now) {
			left -= b.n
		}
	}
	needs, read := h.most-h.asks, false
	for _, b := range g.growing {
		if !read && needs <= left {
			read = true
			left += h.asks
		}
		switch {
		case b == h || b.isSlow(now):
		case b.needs() > left:
			return false
		default:
			left += b.n
		}
	}
	return read || needs <= left
}

// await looks again when the next sender has had its time.
func (g *bodyGate) await() {
	next := g.patience
	for _, b := range g.growing {
		if rest := time.Until(b.until); rest > 0 {
			next = min(next, rest)
		}
	}
	g.again.Reset(next)
}
