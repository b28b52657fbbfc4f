package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
)

const (
	retryCountHeader     = "X-Stainless-Retry-Count"
	idempotencyKeyHeader = "Idempotency-Key"
)

// noticeTime is how long a retry waits when all calls that it could belong to
// still seem to have their clients: it comes over another connection and may be
// here before the end of the first has been noticed. A call that may have been
// retried meanwhile waits as long before it makes a turn.
const noticeTime = 50 * time.Millisecond

// A retry is what a request says about the ones that it may repeat.
type retry struct {
	digest  retryDigest
	started time.Duration // when its header was there, after attempts.born
	count   int           // how often its client has tried before; 0 also if it does not say
	// marked says that it repeats another, if there is another. A request with
	// an idempotency key does: the key is part of the digest.
	marked bool
	keyed  bool // it has an idempotency key: all requests of this digest are tries of one
	waited bool // for the noticeTime
	// expected says that its client is one that would retry it.
	expected bool
}

// A retryDigest is equal for requests that ask for the same. 128 bits that are
// quick to make are enough: whoever could find another request with the same would
// repeat one of its own session.
type retryDigest [16]byte

// recorded is the digest as the trace has it.
func (d retryDigest) recorded() (long [32]byte) {
	copy(long[:], d[:])
	return long
}

// retry reads a request's markers: those of the official SDKs, which count from
// 0, and the idempotency key.
func (x *exchange) retry(body []byte) retry {
	h := x.request.Header
	key := h.Get(idempotencyKeyHeader)
	r := retry{started: x.started.Sub(x.proxy.attempts.born), keyed: key != ""}
	if text := h.Get(retryCountHeader); text != "" {
		if n, err := strconv.ParseUint(text, 10, 16); err == nil {
			r.count, r.expected = int(n), true
		}
	}
	r.marked = r.count > 0 || r.keyed
	r.expected = r.expected || r.keyed

	content := xxh3.Hash128(body).Bytes()
	var scratch [512]byte
	b := append(scratch[:0], x.route...)
	b = append(append(b, 0), x.query()...)
	b = append(append(b, 0), content[:]...)
	r.digest = xxh3.Hash128(append(b, key...)).Bytes()
	return r
}

// recognise answers a retry from the attempt that it belongs to, if there is
// one; otherwise the request is one to be run. Of a dialogue it returns the turn that
// the attempt came to, from where it goes on.
func (c *call) recognise(session *registry.Session, r retry) (resume *registry.Turn, done bool, err error) {
	t := c.proxy.attempts
	if r.marked {
		t.recall(session, r)
	}
	for {
		claimed := t.open(session, r)
		switch claimed.course {
		case waits:
			var noticed <-chan time.Time
			if claimed.over == nil {
				noticed, r.waited = time.After(noticeTime), true
			}
			select {
			case <-claimed.over:
			case <-noticed:
			case <-c.exchange.request.Context().Done():
				return nil, true, errClientGone
			}
		case joins:
			return nil, true, c.join(claimed)
		case replays:
			turn, err := session.Turn(claimed.turn)
			if err != nil {
				return nil, true, err
			}
			if delivered := turn.Delivered(); c.session.Settings().User != nil && (delivered == nil || !*delivered) {
				c.own(claimed, r) // it may be that the user was still to be asked
				return turn, false, nil
			}
			return nil, true, c.answerAgain(claimed, turn)
		default:
			c.own(claimed, r)
			if claimed.progress == 0 {
				return nil, false, nil
			}
			turn, err := session.Turn(claimed.progress - 1)
			return turn, err != nil, err
		}
	}
}

// own makes an attempt this call's own. Until it is over it can be claimed once
// its client has gone.
func (c *call) own(claimed claim, r retry) {
	c.claim = claimed
	switch {
	case claimed.course == reruns:
		c.replay = metrics.ReplayRerun
	case r.count > 0:
		c.replay = metrics.ReplayNew
	}
	if o := &c.proxy.options; r.expected && o.RetryGrace > 0 && o.ReplayMaxBytes > 0 {
		c.outlet = &c.retried
		c.outlet.call, c.outlet.client, c.outlet.holders = c, c.writer, 1
		c.writer, c.control = c.outlet, *http.NewResponseController(c.outlet)
	}
	c.opened.Store(true)
}

// retriedElsewhere reports that the client has gone, and that a retry of the call
// runs or ran by itself: then the call must not make a turn of its own.
func (c *call) retriedElsewhere() bool {
	if !c.claim.doubted.Load() {
		return false
	}
	select {
	case <-c.exchange.request.Context().Done():
		c.clientLeft() // it may be that nobody has said so yet
	case <-time.After(noticeTime):
	}
	return c.proxy.attempts.gaveUp(c.claim)
}

// left says that the client has gone and that nothing is kept for its retry: a
// write could succeed, but to nobody.
func (x *exchange) left() bool {
	return x.request.Context().Err() != nil && (x.outlet == nil || x.outlet.direct.Load())
}

// ended notes how a turn of this call's own went out. Of an answer that is kept
// conclude says it, or the retry.
func (c *call) ended(whole bool) {
	if c.silent {
		return
	}
	if c.outlet == nil || c.outlet.direct.Load() {
		c.handedOver(c.claim, whole)
	}
}

// conclude says that nothing more comes of an attempt, and leaves what was kept
// of its answer to the retry that has joined, if one has.
func (x *exchange) conclude(panicked bool) {
	t := x.proxy.attempts
	if x.turn != nil {
		t.answered(x.claim, x.turn.Index)
	}
	t.failed(x.claim)
	defer t.settle(x.claim)
	o := x.outlet
	if o == nil || !o.kept() {
		return
	}
	o.close(&keptEnd{
		broken: x.broken || panicked, turn: x.turn, outcome: x.outcome, end: x.end, err: x.err,
		upstream: x.upstream, replica: x.replica, upstreamRequestID: x.upstreamRequestID,
	})
	t.let(o)
	if x.turn != nil {
		x.handedOver(x.claim, false) // unless a retry has claimed it
		x.lost(errClientGone)
	}
}
