package proxy

import (
	"hash/maphash"
	"time"
)

// A settledLog keeps the attempts whose client has its answer and that no retry
// has claimed, in the order in which they were settled. A busy daemon has hundreds
// of thousands: they are kept without pointers, where the garbage collector does
// not look, and what a new request of the same content shows to be done with is
// left where it is until its time is over.
//
// The zero value is empty.
type settledLog struct {
	entries    []settled // a ring; its length is a power of two
	newest     []uint64  // by the hash of the key, one more than the place of the latest such entry
	seed       maphash.Seed
	start, end uint64 // the places of those that are in it; an entry is at the remainder of its place
}

// settled is an attempt without what only others need.
type settled struct {
	attemptKey
	number, since uint64        // 0 is an entry that was taken out
	older         uint64        // one more than the place of the one before with the same hash
	endedAt       time.Duration // after attempts.born
	turn, tries   uint32
}

const (
	leastSettled  = 64
	settledToHash = 4 // entries for each hash
)

// at returns the entry in a place from start to end.
func (l *settledLog) at(place uint64) *settled { return &l.entries[place&uint64(len(l.entries)-1)] }

// latest returns one more than the place of the latest entry with the hash of key.
func (l *settledLog) latest(key attemptKey) *uint64 {
	return &l.newest[maphash.Comparable(l.seed, key)&uint64(len(l.newest)-1)]
}

func (l *settledLog) add(s settled) {
	if l.end-l.start == uint64(len(l.entries)) {
		l.resize(max(2*len(l.entries), leastSettled))
	}
	latest := l.latest(s.attemptKey)
	s.older = *latest
	*l.at(l.end) = s
	l.end++
	*latest = l.end
}

// first returns the entry that was settled first, nil if there is none.
func (l *settledLog) first() *settled {
	if l.start == l.end {
		return nil
	}
	return l.at(l.start)
}

// drop removes the entry that was settled first.
func (l *settledLog) drop() {
	l.start++
	if n := len(l.entries); n > leastSettled && l.end-l.start < uint64(n/8) {
		l.resize(n / 2)
	}
}

func (l *settledLog) resize(n int) {
	old := *l
	l.entries, l.newest, l.seed = make([]settled, n), make([]uint64, n/settledToHash), maphash.MakeSeed()
	l.end = l.start
	for place := old.start; place < old.end; place++ {
		l.add(*old.at(place))
	}
}

// backward yields the entries with a key, and their places, the latest first.
func (l *settledLog) backward(key attemptKey) func(yield func(place uint64, s *settled) bool) {
	return func(yield func(uint64, *settled) bool) {
		if len(l.newest) == 0 {
			return
		}
		for next := *l.latest(key); next > l.start; {
			s := l.at(next - 1)
			if s.number != 0 && s.attemptKey == key && !yield(next-1, s) {
				return
			}
			next = s.older
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
		attemptKey: a.key, number: a.number, since: a.since, endedAt: a.endedAt, turn: uint32(a.turn), tries: uint32(a.tries),
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
			tries: int(s.tries), turn: int(s.turn), endedAt: s.endedAt,
		}
		if now-a.endedAt < replayAge {
			s.number = 0
			t.bytes -= attemptBytes
			t.put(a)
			t.line(a)
		}
	}
}
