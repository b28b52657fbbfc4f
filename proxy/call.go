package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/nonblock"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// A call is one model call, from its admission to its end.
type call struct {
	*exchange
	session  *registry.Session
	admitted *registry.Call
	life     life            // of the request
	ctx      context.Context // the same, or of one model call in it: client, session, budgets
	cancel   context.CancelCauseFunc

	request      *dialect.Request
	added        dialect.Added
	conversation dialect.Conversation
	follows      *int // the turn that the request names as the one it continues

	budget   budget
	target   *upstream.Upstream
	outgoing upstream.Request
	// resendable says that the request is kept, because it may be sent once more
	// without what was added.
	resendable atomic.Bool
	written    atomic.Bool // the request has been, whole
	bodyGone   atomic.Bool // see letGo
	response   *upstream.Response
	answer     renewingReader // its body, where it is read whole

	// generated is set once the upstream has nothing of worth left to say, so
	// that a client's leaving no longer cancels it.
	generated atomic.Bool

	opened atomic.Bool // the exchange's claim and outlet are set
}

// call serves a recorded route.
func (x *exchange) call() error {
	session, err := x.authenticate()
	if err != nil {
		return err
	}
	c := &call{exchange: x, session: session}
	base := &c.life
	c.cancel = base.cancel
	defer c.cancel(nil)
	// A client that leaves cancels the call, but not through its context:
	// context.Canceled would not say who cancelled.
	stop := nonblock.AfterLeave(x.request.Context(), c.clientLeft)
	defer stop()

	body, err := x.readBody(base)
	if err != nil {
		return err
	}
	defer x.held.release()
	if c.request, err = x.dialect.Parse(body, session); err != nil {
		return err
	}
	x.stream = c.request.Stream
	x.early.wait(x.stream, x.held.waited)
	r := x.retry(body)
	resume, done, err := c.recognise(session, r)
	if done {
		return err
	}
	if c.follows, err = follow(session, c.request.References); err != nil {
		return err
	}
	if user := session.Settings().User; user != nil && x.route == metrics.RouteChat {
		return c.converse(base, r, user, resume)
	}
	return c.admit(base, r)
}

// admit waits for the call's place under the limits and makes it.
func (c *call) admit(ctx context.Context, r retry) error {
	if err := c.enter(ctx, r); err != nil {
		return err
	}
	defer c.admitted.Close()
	return c.run() //nolint:contextcheck // that is c.ctx; hooks are asked whether the client stays or not
}

// enter waits for the call's place under the limits, which closing c.admitted gives
// back. The call's cancel must be that of ctx.
func (c *call) enter(ctx context.Context, r retry) (err error) {
	if err := c.askAgain(ctx, c.session); err != nil {
		return err
	}
	waited := time.Now()
	c.admitted, err = c.session.Admit(ctx, registry.CallInfo{
		Dialect: c.dialect.Name(), Route: string(c.route), RequestID: c.requestID, Cancel: c.cancel,
		Attempt: r.count, Digest: r.digest.recorded(), Waited: c.held.waited,
	})
	wait := time.Since(waited)
	c.admission += wait
	c.proxy.options.Metrics.AdmissionWait.Observe(wait.Seconds())
	if err != nil {
		return err
	}
	c.ctx = c.admitted.Context()
	return nil
}

// clientLeft gives the call up, unless its client may come back for an answer
// that has not begun.
func (c *call) clientLeft() {
	if c.opened.Load() {
		var kept *outlet
		if o := c.outlet; o != nil && o.keep() {
			kept = o
		}
		if !c.proxy.attempts.leave(c.claim, kept) {
			return
		}
	}
	c.abandon()
}

// abandon ends the call unless all that it still lacks is the end itself, which
// is then waited for briefly.
func (c *call) abandon() {
	if c.generated.Load() {
		time.AfterFunc(tailBudget, func() { c.cancel(errClientGone) })
		return
	}
	c.cancel(errClientGone)
}

// run takes an admitted call to its end.
func (c *call) run() error {
	settings := c.admitted.Settings()
	c.upstream = settings.Upstream
	target, ok := c.proxy.options.Upstreams.Get(settings.Upstream)
	if !ok {
		return c.failed(errNotConfigured, nil)
	}
	if err := target.Rejects(); err != nil {
		return err // it is no failed call: it was not even tried
	}
	c.target = target
	if err := c.send(settings); err != nil {
		return c.failed(err, nil)
	}
	defer c.response.Body.Close()
	return c.respond()
}

// failed writes a call that makes no turn into the trace and returns err, or
// the reason behind it when the call was cancelled: the client left, the
// session ended, a budget ran out.
func (c *call) failed(err error, received []byte) error {
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	c.fail(failureKind(err), c.upstreamStatus(), err.Error(), received)
	return err
}

// upstreamStatus is the status that the upstream gave, 0 if it gave none.
func (c *call) upstreamStatus() int {
	if c.response == nil {
		return 0
	}
	return c.response.StatusCode
}

// began is when the call went to the upstream, or if it never did, when it
// arrived: time in a queue is not the model's.
func (c *call) began() time.Time {
	if c.dispatched.IsZero() {
		return c.started
	}
	return c.dispatched
}

func (c *call) fail(kind registry.FailureKind, status int, message string, received []byte) {
	c.proxy.attempts.failed(c.claim)
	c.proxy.options.Metrics.FailedCall(kind)
	c.admitted.Fail(registry.Failure{
		Kind: kind, Status: status, Message: message, Received: received,
		Upstream: c.upstream, Replica: c.replica, UpstreamRequestID: c.upstreamRequestID,
		StartedAt: c.began(), TimeToFirstEvent: c.firstEvent, Duration: time.Since(c.began()),
	})
}

// commit makes the turn visible. Only then may the client see its end.
func (c *call) commit(status int, body []byte, result dialect.Result) error {
	if c.retriedElsewhere() {
		return c.failed(errClientGone, body)
	}
	turn, err := c.admitted.Commit(registry.Response{
		Status: status, Body: body, Shared: result.PromptTokenIDs, Stream: c.stream, Model: result.Model,
		UpstreamRequestID: c.upstreamRequestID, Upstream: c.upstream, Replica: c.replica,
		Usage: result.Usage, Choices: result.Choices, IDs: result.IDs,
		WeightVersion:    registry.VersionSpan{Start: c.response.Version, End: c.response.CurrentVersion()},
		StartedAt:        c.began(),
		TimeToFirstEvent: c.firstEvent, Duration: time.Since(c.began()),
	})
	if err != nil {
		err = &commitError{err}
		c.fail(failureKind(err), c.upstreamStatus(), err.Error(), body)
		return err
	}
	c.turn = turn
	c.proxy.options.Metrics.Turn(c.dialect.Name())
	if u := result.Usage; u != nil {
		instruments := c.proxy.options.Metrics.Upstream(c.upstream)
		instruments.Tokens(metrics.TokensInput, u.InputTokens)
		instruments.Tokens(metrics.TokensOutput, u.OutputTokens)
		instruments.Tokens(metrics.TokensCached, u.CachedTokens)
		instruments.Tokens(metrics.TokensReasoning, u.ReasoningTokens)
	}
	c.askStopHooks(turn)
	c.proxy.attempts.answered(c.claim, turn.Index)
	return nil
}

// sinceDispatch is how long the upstream has had.
func (c *call) sinceDispatch() time.Duration { return time.Since(c.dispatched) }
