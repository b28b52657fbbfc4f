package proxy

import (
	"io"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/sse"
)

// tailBudget is how long the end of an upstream's body is waited for once its
// terminal event has come, and once a client has left a finished generation.
const tailBudget = 250 * time.Millisecond

// keepalive is a comment of one line. The blank line that would end an event is
// missing on purpose: some SDKs take any blank line for an event.
const keepalive = ": keepalive\n"

// A relay passes one stream on. The upstream's bytes are read straight into
// the record of the turn; whole events go out of it as they are completed.
//
// The goroutine of the call reads; tick, on a timer, sends keepalives and ends
// the call when the upstream is silent for too long. mu guards all that both
// of them touch: the client's connection and the fields below it.
type relay struct {
	*call
	body   io.Reader // of the upstream's answer
	events dialect.Stream

	received    recording
	scanner     sse.Scanner
	instruments *metrics.Upstream
	lastEvent   time.Time
	edited      []byte // scratch, when what goes out differs from what came
	reported    bool   // the upstream has told of an error

	mu      sync.Mutex
	closed  bool
	tail    bool      // the terminal event has come
	gone    error     // why the client is not written to any more
	written time.Time // the last write to the client
	reading time.Time // since when the upstream has been waited for
	timer   *time.Timer
}

// relayStream relays a stream to its end. The client has its headers, so every
// failure from here on is told in the stream; no error is returned.
func (c *call) relayStream() error {
	c.stream = true
	r := &relay{
		call: c, body: c.response.Body, events: c.dialect.Stream(c.request, c.added, c.conversation),
		instruments: c.proxy.options.Metrics.Upstream(c.upstream),
	}
	// The request is recorded and sent: while the stream runs only what the
	// relay needs is kept.
	c.request = nil
	c.conversation.Forget()
	c.held.release()

	h := c.writer.Header()
	answerHeader(h, c.response.Header)
	streamHeader(h)
	c.response.Header = nil
	c.begin(c.response.StatusCode)
	r.written, r.reading = time.Now(), r.dispatched
	err := c.write(nil)
	if err != nil {
		err = r.leave(err)
	} else {
		err = r.run()
	}
	r.finish(err)
	return nil
}

// run reads until the upstream's body or the call ends, and returns what
// reading ended with: io.EOF for a body that ended cleanly.
func (r *relay) run() error {
	r.mu.Lock()
	r.timer = time.AfterFunc(r.nextTick(r.reading), r.tick)
	r.mu.Unlock()
	defer r.stop() // also of a panic: the timer must not write to an answer that is over
	for {
		n, err := r.body.Read(r.received.room())
		now := time.Now()
		r.received.add(n)
		if n > 0 {
			if writeErr := r.pass(now); writeErr != nil {
				return writeErr
			}
		}
		if err != nil {
			return err
		}
	}
}

// pass lets out the events that are whole now, in one write.
func (r *relay) pass(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = now
	if r.tail {
		return nil
	}
	out, err := r.collect(now)
	if len(out) > 0 && r.gone == nil {
		if writeErr := r.write(out); writeErr != nil {
			if gone := r.leave(writeErr); gone != nil {
				return gone
			}
		}
		r.written = time.Now()
		r.reading = r.written
	}
	if r.tail {
		r.timer.Reset(tailBudget) // which begins when all before it has been written
	}
	if err != nil {
		return err
	}
	if r.received.length > r.proxy.options.MaxBodyBytes {
		return tooLong(r.proxy.options.MaxBodyBytes)
	}
	return nil
}

// collect handles the events that are whole and returns the bytes that go out
// in their place. They alias the recording unless an event was dropped or
// changed.
func (r *relay) collect(now time.Time) (out []byte, err error) {
	rec := &r.received
	from, edited := rec.parsed, r.edited[:0]
	changed := false
	for !r.tail && err == nil {
		n := r.scanner.Next(rec.rest())
		if n == 0 {
			break
		}
		event := rec.rest()[:n]
		r.observe(event, now)
		action, replacement := r.events.Event(event)
		if failure := r.events.Failure(); failure != nil && !r.reported {
			r.reported = true
			r.stopAtOverflow(failure.Message) // before the harness can act on it
		}
		if action == dialect.Forward {
			rec.parsed += n
			continue
		}
		changed = true
		edited = append(append(edited, rec.buf[from:rec.parsed]...), replacement...)
		switch action {
		case dialect.Hold:
			r.tail = true
			r.generated.Store(true)
		case dialect.Abort:
			err = errAborted
		default:
			rec.parsed += n
		}
		from = rec.parsed
	}
	if r.events.Complete() {
		r.generated.Store(true)
	}
	if !changed {
		return rec.buf[from:rec.parsed], err
	}
	if !r.tail && err == nil {
		edited = append(edited, rec.buf[from:rec.parsed]...)
	}
	r.edited = edited
	return edited, err
}

// observe measures an event's arrival.
func (r *relay) observe(event []byte, now time.Time) {
	if sse.IsComment(event) {
		return
	}
	last := r.lastEvent
	r.lastEvent = now
	if last.IsZero() {
		r.firstEvent = now.Sub(r.dispatched)
		r.instruments.TimeToFirstEvent.Observe(r.firstEvent.Seconds())
		r.timer.Reset(r.nextTick(now)) // the idle budget counts from here on
		return
	}
	r.instruments.StreamGap.Observe(now.Sub(last).Seconds())
}

// leave gives up the client, which cannot be written to, and with it the call,
// unless that only lacks its end: then it returns nil.
func (r *relay) leave(err error) error {
	r.gone = clientGone(err)
	if r.generated.Load() {
		r.clientLeft()
		return nil
	}
	r.cancel(r.gone)
	return r.gone
}

// tick sends a keepalive when one is due and ends the call when the upstream
// has been silent for too long. One timer that looks at clocks costs less than
// timers that are set anew with every event.
func (r *relay) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	now := time.Now()
	patience := r.patience()
	switch {
	case r.tail:
		r.cancel(errTailOver)
		return
	case now.Sub(r.reading) >= patience.after:
		r.cancel(patience)
		return
	case r.keepsAlive() && now.Sub(r.written) >= r.proxy.options.Keepalive:
		if err := r.write([]byte(keepalive)); err != nil {
			_ = r.leave(err) // the reader sees the cancelled call
			return
		}
		r.written = time.Now()
	}
	r.timer.Reset(r.nextTick(time.Now()))
}

// nextTick is how long nothing can be due.
func (r *relay) nextTick(now time.Time) time.Duration {
	next := r.reading.Add(r.patience().after)
	if keepalive := r.written.Add(r.proxy.options.Keepalive); r.keepsAlive() && keepalive.Before(next) {
		next = keepalive
	}
	return max(next.Sub(now), 0)
}

// keepsAlive says whether the client is to hear something while the upstream is
// silent.
func (r *relay) keepsAlive() bool {
	return r.gone == nil && !r.silent && r.proxy.options.Keepalive > 0
}

// patience is how long the upstream may be silent. Engines send their header
// when they have queued a call, so the first event still has the time of the
// first byte.
func (r *relay) patience() *timeoutError {
	if r.lastEvent.IsZero() {
		return r.proxy.firstByte
	}
	return r.proxy.idle
}

// stop ends the timer; after it the connection is the caller's alone.
func (r *relay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.answered = time.Now()
}
