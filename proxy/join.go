package proxy

import (
	"strings"

	"github.com/muxproxy/muxproxy/metrics"
)

// A joiner is a retry that has taken over a call whose client has gone. It
// writes what the call has kept since then, and what still comes of it.
type joiner struct {
	*call   // the retry's own, which is not admitted
	claimed claim
	missed  bool // the client did not get all
}

// join answers with what a call keeps. An error means that the client was not
// answered yet.
func (c *call) join(claimed claim) error {
	c.replay = metrics.ReplayJoined
	j := &joiner{call: c, claimed: claimed}
	defer c.proxy.attempts.let(claimed.kept)
	gone := c.exchange.request.Context().Done()
	for {
		p := claimed.kept.take()
		// Who has all of it may have gone: nothing is passed where there is nothing.
		if !j.missed && p.status != 0 && (j.status == 0 || len(p.body) > 0) {
			j.pass(p)
		}
		if p.end != nil {
			return j.end(p.end)
		}
		select {
		case <-p.more:
		case <-gone:
			gone = nil
			if j.status == 0 {
				j.leave(claimed.kept)
				return errClientGone
			}
			j.leave(nil) // and the end, which is near then, says whether it has missed anything
		}
	}
}

// leave gives up the client, and with it the call unless its answer is still
// there for another retry.
func (j *joiner) leave(kept *outlet) {
	if j.proxy.attempts.leave(j.claimed, kept) {
		j.claimed.kept.call.abandon()
	}
}

// pass writes a part of the answer.
func (j *joiner) pass(p part) {
	err := j.exchange.request.Context().Err()
	if err == nil && j.status == 0 {
		err = j.beginKept(p)
	}
	for _, b := range p.body {
		if err == nil {
			err = j.write(b)
		}
		j.proxy.attempts.release(j.claimed.kept, len(b))
	}
	if err != nil {
		j.missed = true
		j.lost(err)
		j.leave(nil)
	}
}

// beginKept sends the head that the call has kept.
func (j *joiner) beginKept(p part) error {
	h := j.writer.Header()
	for name, values := range p.header {
		if name != requestIDHeader && name != ServerHeader {
			h[name] = values
		}
	}
	j.stream = strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
	j.begin(p.status)
	return j.write(nil)
}

// end ends as the call ended.
func (j *joiner) end(end *keptEnd) error {
	j.turn, j.upstream, j.replica, j.upstreamRequestID = end.turn, end.upstream, end.replica, end.upstreamRequestID
	switch {
	case j.missed:
	case j.status == 0:
		return errJoinedNothing
	default:
		j.outcome, j.exchange.end, j.err, j.broken = end.outcome, end.end, end.err, end.broken
	}
	if j.turn != nil {
		j.handedOver(j.claimed, !j.missed && !end.broken)
	}
	return nil
}

// handedOver notes whether a turn has reached the client of the request that
// claimed it.
func (x *exchange) handedOver(claimed claim, whole bool) {
	if whole {
		x.turn.SetDelivered(true)
	} else if x.proxy.attempts.lost(claimed) {
		x.turn.SetDelivered(false)
	}
}
