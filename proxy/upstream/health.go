package upstream

import "time"

const (
	// maxFailures is how many calls in a row may fail before a replica is out.
	maxFailures = 5
	// maxStrikes is how many health checks in a row may fail before it is out.
	maxStrikes = 3
	minBackoff = 250 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// health is what is known of a replica. The upstream's lock guards it.
//
// A refused dial ends with the next connection that is made: when the backoff is
// over a single call tries. Failed calls end with the backoff alone, because a
// trial generation may take minutes, but then one more failure is enough.
type health struct {
	refused  bool          // no connection could be made since the last attempt
	trial    bool          // a call is trying whether one can be made again
	failures int           // calls failed in a row: 5xx and broken connections
	backoff  time.Duration // the last one; 0 when all is well
	until    time.Time     // when it ends
	strikes  int           // health checks failed in a row
	reason   string        // why the replica is or was last out
}

// up reports whether calls may go to the replica.
func (h *health) up(now time.Time) bool {
	return h.strikes < maxStrikes && !h.refused && !now.Before(h.until)
}

// due reports whether the replica needs a call that tries to connect.
func (h *health) due(now time.Time) bool {
	return h.strikes < maxStrikes && h.refused && !h.trial && !now.Before(h.until)
}

// usable reports whether a call may go to the replica, be it to try.
func (h *health) usable(now time.Time) bool { return h.up(now) || h.due(now) }

// connectable reports whether nothing but failed calls speaks against the replica.
func (h *health) connectable(time.Time) bool { return h.strikes < maxStrikes && !h.refused }

// dialFailed reports whether the replica went out because of it.
func (h *health) dialFailed(now time.Time, reason string) bool {
	wasUp := h.up(now)
	if h.refused && now.Before(h.until) {
		return false // one of many that were under way
	}
	h.refused, h.trial = true, false
	h.backOff(now, reason)
	return wasUp
}

// dialed reports whether the replica came back because of it.
func (h *health) dialed(now time.Time) bool {
	if !h.refused {
		return false
	}
	*h = health{failures: h.failures, strikes: h.strikes}
	return h.up(now)
}

// failed counts a call that ended in a 5xx or a broken connection, and reports
// whether the replica went out because of it.
func (h *health) failed(now time.Time, reason string) bool {
	wasUp := h.up(now)
	h.failures++
	if h.failures < maxFailures || now.Before(h.until) {
		return false
	}
	h.backOff(now, reason)
	return wasUp
}

// answered notes a call that the replica answered well. An answer on an old
// connection says nothing about new ones.
func (h *health) answered() {
	h.failures = 0
	if !h.refused && h.strikes < maxStrikes {
		h.backoff, h.until, h.reason = 0, time.Time{}, ""
	}
}

// struck counts a failed health check, and reports whether the replica went out
// because of it.
func (h *health) struck(now time.Time, reason string) bool {
	wasUp := h.up(now)
	h.strikes++
	if h.strikes >= maxStrikes {
		h.reason = reason
	}
	return wasUp && !h.up(now)
}

// well notes a good health check, and reports whether the replica came back
// because of it.
func (h *health) well(now time.Time) bool {
	out := h.strikes >= maxStrikes
	h.strikes = 0
	if out && h.up(now) {
		h.reason = ""
		return true
	}
	return false
}

func (h *health) backOff(now time.Time, reason string) {
	h.backoff = min(max(2*h.backoff, minBackoff), maxBackoff)
	h.until = now.Add(h.backoff)
	h.reason = reason
}

// retryIn is how long it takes until the replica may be tried again.
func (h *health) retryIn(now time.Time, interval time.Duration) time.Duration {
	if h.strikes >= maxStrikes {
		return interval
	}
	return h.until.Sub(now)
}
