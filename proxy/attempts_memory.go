package proxy

import "time"

// replayAge is how long an attempt that has ended can be claimed. SDKs retry
// within seconds.
const replayAge = 2 * time.Minute

// attemptBytes is what an attempt takes with its place in the map, roughly. One
// that is settled takes less.
const attemptBytes = 256

// reserve makes room for n more bytes of an answer that is kept. It reports
// false if nobody is going to want them. When there is no room it returns what is
// closed once a retry has read some of the answer, or errKeptTooMuch if none
// reads it.
func (t *attempts) reserve(o *outlet, n int) (wanted bool, room <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.unwanted {
		return false, nil, nil
	}
	if t.fit(int64(n)) {
		t.bytes += int64(n)
		o.reserved += int64(n)
		return true, nil, nil
	}
	if o.holders == 1 || o.reserved == 0 {
		return false, nil, errKeptTooMuch
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return false, o.room, nil
}

// release gives n bytes of an answer back, which a retry has read.
func (t *attempts) release(o *outlet, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= int64(n)
	o.reserved -= int64(n)
	o.makeRoom()
}

// let says that one of those that hold an answer is done with it: the call that
// writes it, or the retry that reads it.
func (t *attempts) let(o *outlet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.holders--
	o.makeRoom()
	if o.holders == 0 {
		t.bytes -= o.reserved
		o.reserved, o.unwanted = 0, true
	}
}

// fit forgets attempts, those that ended first, until n more bytes have room. It
// reports whether they have.
func (t *attempts) fit(n int64) bool {
	for t.bytes+n > t.limit {
		if !t.forgetEarliest(t.now()) {
			return false
		}
	}
	return true
}

// expire forgets the attempts whose time is over.
func (t *attempts) expire(now time.Duration) {
	for t.forgetEarliest(now - replayAge) {
	}
}

// forgetEarliest forgets the attempt that ended first. It reports false if none
// has ended until then.
func (t *attempts) forgetEarliest(until time.Duration) bool {
	a, s := t.ended.next, t.settled.first()
	switch {
	case s != nil && s.endedAt <= until && (a == &t.ended || s.endedAt <= a.endedAt):
		if s.number != 0 {
			t.bytes -= attemptBytes
		}
		t.settled.drop()
	case a != &t.ended && a.endedAt <= until:
		t.forget(a)
	default:
		return false
	}
	return true
}

// forget takes an attempt from among those that can be claimed.
func (t *attempts) forget(a *attempt) {
	a.forgotten = true
	a.unlink()
	t.bytes -= attemptBytes
	if t.newest[a.key] == a {
		if a.older == nil {
			delete(t.newest, a.key)
		} else {
			t.newest[a.key] = a.older
		}
		return
	}
	for b := t.newest[a.key]; b != nil; b = b.older {
		if b.older == a {
			b.older = a.older
			return
		}
	}
}
