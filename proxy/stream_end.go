package proxy

import (
	"errors"
	"io"
	"strings"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// finish ends the client's stream as the upstream's ended: cleanly when the
// turn is whole and committed, in no other case.
func (r *relay) finish(err error) {
	clean := errors.Is(err, io.EOF)
	held := r.received.rest()
	if clean && !r.events.Terminal() {
		held = r.unterminated(held)
	}
	result := r.events.Result()
	switch {
	case result.Aborted:
		r.breakOff(errAborted)
	case result.Failure != nil:
		r.end = "error"
		r.outcome = outcomeOf(registry.FailureUpstreamError)
		r.failedInBand(result.Failure.Message, r.received.whole())
		if writeErr := r.writeEnd(held); writeErr != nil || !clean {
			r.broken = true
		}
	case r.events.Terminal(), clean && r.events.Complete():
		r.release(result, held)
	default:
		r.breakOff(incomplete(err))
	}
}

// unterminated takes what is left at a clean end for an event, as some servers
// leave out the last blank line, and returns what goes out in its place.
func (r *relay) unterminated(rest []byte) []byte {
	if len(rest) == 0 {
		return nil
	}
	switch action, replacement := r.events.Event(rest); action {
	case dialect.Forward, dialect.Hold:
		return rest
	default:
		return replacement
	}
}

// release commits the turn and lets its held end go.
func (r *relay) release(result dialect.Result, held []byte) {
	r.end = "eof"
	if r.events.Terminal() {
		r.end = "done"
	}
	if err := r.commit(r.response.StatusCode, r.received.whole(), result); err != nil {
		r.tell(err)
		return
	}
	err := r.gone
	if err == nil && r.left() {
		err = errClientGone
	}
	if err == nil {
		err = r.writeEnd(held)
	}
	r.ended(err == nil)
	if err != nil {
		r.lost(err)
	}
}

// breakOff records a call that made no turn and breaks the client's stream.
func (r *relay) breakOff(err error) {
	r.tell(r.failed(err, r.received.whole()))
}

// tell ends a stream that must not look whole: an error event, if there is
// still somebody to read it, and a broken connection.
func (c *call) tell(err error) {
	if refusal := c.brokeOff(err); refusal.status != statusClientGone {
		_ = c.write(c.dialect.ErrorEvent(refusal.body())) // the connection is given up either way
	}
}

// brokeOff notes why an answer that has begun is not whole.
func (c *call) brokeOff(err error) refusal {
	r := refusalOf(err)
	c.err, c.outcome, c.end, c.broken = err, r.outcome, endOf(err), true
	if r.outcome == metrics.OutcomeRefused {
		c.outcome = outcomeOf(failureKind(err))
	}
	return r
}

// endOf says in one word why a stream was broken off.
func endOf(err error) string {
	if timeout, ok := errors.AsType[*timeoutError](err); ok {
		return strings.ReplaceAll(timeout.budget, " ", "_") + "_timeout"
	}
	if stopped, ok := errors.AsType[*registry.StoppedError](err); ok {
		return stopped.Condition
	}
	switch kind := failureKind(err); kind {
	case registry.FailureClientDisconnected:
		return "client_gone"
	case registry.FailureUpstreamTruncated:
		return "reset"
	default:
		return string(kind)
	}
}

// incomplete is a stream that ended before it was whole.
func incomplete(err error) error {
	if _, ok := errors.AsType[*upstreamError](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it ended before its terminal event")
	}
	return truncated(err)
}
