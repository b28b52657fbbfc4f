package proxy

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// attempts knows the calls that a retry may belong to: those that run, and for
// a while those that have ended. What was answered is not kept here but made
// again from the turn, so that an attempt is small; the answers that are kept
// for clients which left while their calls ran count as well.
//
// Nearly every call is answered and never heard of again. Such attempts are
// settled: they are looked for only when a retry comes.
//
// mu is held for moments only, never while anything is written or waited for,
// and no other lock is taken under it.
type attempts struct {
	born  time.Time
	grace time.Duration // that a call outlives its client by
	limit int64         // of bytes

	mu      sync.Mutex
	bytes   int64
	opened  uint64 // how many there were so far
	newest  map[attemptKey]*attempt
	ended   attempt // the head of the ring of those that have ended; the earliest comes next
	settled settledLog
}

func newAttempts(grace time.Duration, limit int64) *attempts {
	t := &attempts{born: time.Now(), grace: grace, limit: limit, newest: make(map[attemptKey]*attempt)}
	t.settled.seed = maphash.MakeSeed()
	t.ended.next, t.ended.previous = &t.ended, &t.ended
	return t
}

// now is the time since t was made. All times of attempts are of this kind.
func (t *attempts) now() time.Duration { return time.Since(t.born) }

// attemptKey is what a request and its retries have in common.
type attemptKey struct {
	session uint64
	digest  retryDigest
}

// attemptState says who may claim an attempt.
type attemptState int

const (
	attemptAttended    attemptState = iota // it runs and its client is there: nobody
	attemptDeserted                        // it runs and its client has gone
	attemptFailed                          // it has ended without a turn
	attemptUndelivered                     // it has ended with a turn that its client did not get
	attemptDelivered                       // it has ended with a turn that its client has, as far as is known
)

// attempt is one call and all that is answered by it. attempts.mu guards it, but
// for doubted.
type attempt struct {
	key      attemptKey
	number   uint64        // in the order in which they were opened
	since    uint64        // attempts settled before this one in settledLog are done with; 0 are none
	started  time.Duration // when the header of the request that opened it was there, after attempts.born
	state    attemptState
	count    int // of the request that opened it
	tries    int // retries so far, as the newest request that it answers counts them
	claims   int // how many retries have claimed it
	turn     int // its index, once it has ended with one
	progress int // one more than the index of the last turn of a dialogue that goes on

	kept  *outlet       // of a deserted call that can be joined
	grace *time.Timer   // of a deserted call that can be joined
	over  chan struct{} // closed when it has ended; nil if nobody waits for that

	older          *attempt      // of the same key; it was opened before
	keyed          bool          // as retry has it; known while it runs
	forgotten      bool          // it cannot be claimed any more
	doubted        atomic.Bool   // another one outruns it, or has; read without mu
	previous, next *attempt      // in the ring of those that have ended
	endedAt        time.Duration // after attempts.born
}

func (a *attempt) running() bool { return a.state == attemptAttended || a.state == attemptDeserted }

// A course is what becomes of a request.
type course int

const (
	runs    course = iota // as a call of its own
	reruns                // the same, in the place of an attempt that has failed
	joins                 // it takes over a call whose client has gone
	replays               // it is answered by a turn
	waits                 // for something, and is then looked at again
)

// A claim is an attempt in the hands of a request. Only the newest claim of an
// attempt decides about it.
type claim struct {
	*attempt
	number   int
	course   course
	turn     int             // to replay
	progress int             // of the dialogue that a rerun goes on with
	kept     *outlet         // to join
	over     <-chan struct{} // the end of a call that cannot be joined any more; nil is the noticeTime
}

// open decides what becomes of a request. A retry claims one attempt: one that
// failed, or else one whose client has gone, or else the newest that was
// answered, except by the retry of the same count. Any other request is an
// attempt of its own, and supersedes those whose clients wait no more, unless they
// outrun it.
func (t *attempts) open(session *registry.Session, r retry) claim {
	key := attemptKey{session.Number(), r.digest}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	own := &attempt{key: key, started: r.started, count: r.count, tries: r.count, keyed: r.keyed}
	course := runs
	if r.marked {
		t.unsettle(key, now)
		if a := t.find(key, r); a != nil {
			if a.state != attemptFailed {
				return t.claim(a, r)
			}
			t.forget(a)
			course, own.progress, own.since = reruns, a.progress, a.since
		} else if !r.waited && t.attended(key) {
			return claim{course: waits}
		}
	} else {
		own.since = t.settled.end
	}
	t.meet(own, course, r.marked)
	t.add(own)
	return claim{attempt: own, course: course, progress: own.progress}
}

// add puts an attempt among those that can be claimed, as the one opened last.
func (t *attempts) add(a *attempt) {
	t.opened++
	a.number = t.opened
	t.put(a)
}

// put puts an attempt to those of its key.
func (t *attempts) put(a *attempt) {
	t.bytes += attemptBytes
	newer := t.newest[a.key]
	if newer == nil || newer.number < a.number {
		a.older, t.newest[a.key] = newer, a
		return
	}
	for newer.older != nil && newer.older.number > a.number {
		newer = newer.older
	}
	a.older, newer.older = newer.older, a
}

// find returns the attempt that a retry is to claim, or nil.
func (t *attempts) find(key attemptKey, r retry) *attempt {
	var left, answered *attempt
	for a := t.newest[key]; a != nil; a = a.older {
		switch {
		case a.state == attemptFailed:
			return a
		case left == nil && (a.state == attemptDeserted || a.state == attemptUndelivered):
			left = a
		case answered == nil && a.state == attemptDelivered && (r.count == 0 || r.count > a.tries):
			answered = a
		}
	}
	if left != nil {
		return left
	}
	return answered
}

// attended says whether a client of the same requests is there, as far as is
// known yet.
func (t *attempts) attended(key attemptKey) bool {
	for a := t.newest[key]; a != nil; a = a.older {
		if a.state == attemptAttended {
			return true
		}
	}
	return false
}

// claim gives an attempt that has not failed to a retry.
func (t *attempts) claim(a *attempt, r retry) claim {
	if a.state == attemptDeserted && a.kept == nil {
		if a.over == nil {
			a.over = make(chan struct{})
		}
		return claim{attempt: a, course: waits, over: a.over}
	}
	a.claims++
	a.tries = max(a.tries, r.count)
	c := claim{attempt: a, number: a.claims, turn: a.turn, kept: a.kept}
	if a.state == attemptDeserted {
		a.grace.Stop()
		a.kept.holders++
		a.state, a.kept, c.course = attemptAttended, nil, joins
		return c
	}
	// Its client may ask once more as soon as it has the last byte, before
	// anybody here knows that it has: the attempt can be claimed all the time.
	c.course = replays
	t.end(a, attemptDelivered)
	return c
}

// meet notes which attempts of the same requests a new one outruns, and whether one of
// them outruns it. A retry that has found a failed try is none of another. All else that
// an unmarked request finds it shows to be done with: agents repeat themselves.
func (t *attempts) meet(own *attempt, course course, marked bool) {
	for a := t.newest[own.key]; a != nil; a = a.older {
		if course == runs && own.outruns(a) {
			a.doubted.Store(true)
		}
		if a.outruns(own) {
			own.doubted.Store(true)
		} else if !marked && a.state != attemptAttended {
			t.forget(a)
		}
	}
}

// outruns reports whether a may be a later try of what b is a try of, and was not over
// when b came. Each try comes over a connection of its own: it may be read before the
// one that it repeats, and before the client of that is seen to leave. What was over
// when b came has nothing to do with it: whoever has that answer may ask once more.
func (a *attempt) outruns(b *attempt) bool {
	return (a.count > b.tries || b.keyed) && (a.running() || a.endedAt > b.started)
}

// recall finds the attempts of an earlier life of the process in the session's
// trace, when nothing else is known of a retry. A failed call that a later one
// repeated is none of them.
func (t *attempts) recall(session *registry.Session, r retry) {
	now := t.now()
	if now >= replayAge {
		return // what an earlier process has answered is too old by now
	}
	key := attemptKey{session.Number(), r.digest}
	t.mu.Lock()
	t.unsettle(key, now)
	known := t.newest[key] != nil
	t.mu.Unlock()
	if known {
		return
	}
	turns, failures := session.Attempts(r.digest.recorded(), time.Now().Add(-replayAge), t.born)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest[key] != nil {
		return
	}
	for _, turn := range turns {
		a := &attempt{key: key, tries: turn.Attempt, turn: turn.Index}
		t.add(a)
		if d := turn.Delivered(); d != nil && *d {
			t.end(a, attemptDelivered)
		} else {
			t.end(a, attemptUndelivered)
		}
	}
	for _, failure := range failures {
		if !repeated(failure, turns, failures) {
			a := &attempt{key: key, tries: failure.Attempt}
			t.add(a)
			t.end(a, attemptFailed)
		}
	}
}

func repeated(failure *registry.FailedCall, turns []*registry.Turn, failures []*registry.FailedCall) bool {
	for _, turn := range turns {
		if turn.Attempt > failure.Attempt && turn.StartedAt.After(failure.StartedAt) {
			return true
		}
	}
	for _, other := range failures {
		if other.Attempt > failure.Attempt && other.StartedAt.After(failure.StartedAt) {
			return true
		}
	}
	return false
}
