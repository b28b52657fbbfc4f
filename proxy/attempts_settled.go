package proxy

import (
	"hash/maphash"
	"slices"
	"time"
)

// A settledLog keeps the attempts whose client has its answer and that no retry
// has claimed, in the order in which they were settled. A busy daemon has hundreds
// of thousands: they are kept without pointers, where the garbage collector does
// not look, and what a new request of the same content shows to be done with is
// left where it is until its time is over.
type settledLog struct {
	seed       maphash.Seed
	pages      []*settledPage // the earliest first
	start, end uint64         // the places of the entries that are in it; places are counted from the first page that there was
}

// settledPage is the entries of a while. A new one touches only the page that is
// written to.
type settledPage struct {
	entries [settledPerPage]settled
	newest  [4 * settledPerPage]uint16 // by the hash of the key, one more than the index of the latest such entry
}

const settledPerPage = 1 << 12

// settled is an attempt without what only others need.
type settled struct {
	attemptKey
	number, since uint64        // 0 is an entry that was taken out
	endedAt       time.Duration // after attempts.born
	turn          uint32
	tries         uint16
	older         uint16 // as in settledPage.newest, of the one before with the same hash
}

// page is where among the pages a place is.
func (l *settledLog) page(place uint64) int {
	return int(place/settledPerPage - l.start/settledPerPage)
}

func (l *settledLog) hash(key attemptKey) uint64 {
	return maphash.Comparable(l.seed, key) % uint64(len(settledPage{}.newest))
}

func (l *settledLog) add(s settled) {
	if l.page(l.end) == len(l.pages) {
		l.pages = append(l.pages, new(settledPage))
	}
	page, index := l.pages[l.page(l.end)], l.end%settledPerPage
	latest := &page.newest[l.hash(s.attemptKey)]
	s.older, *latest = *latest, uint16(index)+1
	page.entries[index] = s
	l.end++
}

// first returns the entry that was settled first, nil if there is none.
func (l *settledLog) first() *settled {
	if l.start == l.end {
		return nil
	}
	return &l.pages[0].entries[l.start%settledPerPage]
}

// drop removes the entry that was settled first.
func (l *settledLog) drop() {
	l.start++
	if l.start%settledPerPage == 0 {
		l.pages = slices.Delete(l.pages, 0, 1)
	}
}

// backward yields the entries with a key, and their places, the latest first.
func (l *settledLog) backward(key attemptKey) func(yield func(place uint64, s *settled) bool) {
	return func(yield func(uint64, *settled) bool) {
		hash, first := l.hash(key), l.start-l.start%settledPerPage
		for i, page := range slices.Backward(l.pages) {
			for next := page.newest[hash]; next != 0; {
				s, place := &page.entries[next-1], first+uint64(i)*settledPerPage+uint64(next)-1
				if place < l.start {
					return
				}
				if s.number != 0 && s.attemptKey == key && !yield(place, s) {
					return
				}
				next = s.older
			}
		}
	}
}

// settle puts an attempt aside that nothing more can become of but that a retry
// claims it.
func (t *attempts) settle(c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := c.attempt
	if a.state != attemptDelivered || a.claims > 0 || a.forgotten {
		return
	}
	t.forget(a)
	t.bytes += attemptBytes
	t.settled.add(settled{
		attemptKey: a.key, number: a.number, since: a.since, endedAt: a.endedAt, turn: uint32(a.turn), tries: uint16(a.tries),
	})
}

// unsettle takes out the settled attempts of a key that a retry may claim: those
// that ended before a new request of the same content came are done with.
func (t *attempts) unsettle(key attemptKey, now time.Duration) {
	var since uint64
	for a := t.newest[key]; a != nil; a = a.older {
		since = max(since, a.since)
	}
	for place, s := range t.settled.backward(key) {
		if place < since {
			return
		}
		since = max(since, s.since)
		a := &attempt{
			key: key, number: s.number, since: s.since, state: attemptDelivered,
			count: int(s.tries), tries: int(s.tries), turn: int(s.turn), endedAt: s.endedAt,
		}
		if now-a.endedAt < replayAge {
			s.number = 0
			t.bytes -= attemptBytes
			t.put(a)
			t.line(a)
		}
	}
}
