package pacing

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxPause bounds a pause, and with it what a damaged cursor can do.
const maxPause = time.Hour

// cursor says when the last turn was, and since when and until when there is
// none because somebody asked for a pause. The times are those of the wall
// clock: processes share them.
type cursor struct {
	last   time.Time
	paused time.Time
	until  time.Time
}

// cursorSize is the length of a written cursor. It never changes, so that one is
// written over another in one go.
const cursorSize = 3*20 + 3

// text is the cursor in nanoseconds of Unix time.
func (c *cursor) text() []byte {
	return fmt.Appendf(nil, "%020d %020d %020d\n", nanos(c.last), nanos(c.paused), nanos(c.until))
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixNano(), 0)
}

// parseCursor reads what text wrote. Nothing is a cursor without a turn; what is
// damaged counts as one whose last turn was now.
func parseCursor(text []byte, now time.Time) cursor {
	if len(text) == 0 {
		return cursor{}
	}
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return cursor{last: now}
	}
	var times [3]time.Time
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 {
			return cursor{last: now}
		}
		if n > 0 {
			times[i] = time.Unix(0, n)
		}
	}
	c := cursor{last: times[0], paused: times[1], until: times[2]}
	c.settle(now)
	return c
}

// settle brings times that are yet to come, because the clock was set back, to
// now: what they hold up then ends as it would have.
func (c *cursor) settle(now time.Time) {
	if c.last.After(now) {
		c.last = now
	}
	length := c.until.Sub(c.paused)
	if length <= 0 || length > maxPause {
		c.paused, c.until = time.Time{}, time.Time{}
		return
	}
	if c.paused.After(now) {
		c.paused, c.until = now, now.Add(length)
	}
}

// pause never shortens another.
func (c *cursor) pause(now, until time.Time) {
	if until.Sub(now) > maxPause {
		until = now.Add(maxPause)
	}
	if until.After(now) && until.After(c.until) {
		c.paused, c.until = now, until
	}
}

// due is how long it is until the next turn.
func (c *cursor) due(now time.Time, interval time.Duration) time.Duration {
	next := c.until
	if !c.last.IsZero() && c.last.Add(interval).After(next) {
		next = c.last.Add(interval)
	}
	return max(next.Sub(now), 0)
}
