package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// send overrides the request, sends it and waits for the upstream's header.
//
// A request that the upstream refused for naming a field that muxproxy had added
// is sent again without: nothing was generated for it. If it is served then, the
// upstream is not asked that way again.
func (c *call) send(settings *registry.Settings) error {
	asSent := c.request.Object
	c.memory.lend(c.request)
	refused := dialect.AddedOf(c.target.Refused())
	for again := false; ; again = true {
		if err := c.override(settings, refused); err != nil {
			return err
		}
		if c.added == (dialect.Added{}) {
			asSent = rawjson.Object{} // it is not sent again, and then let go
		}
		c.conversation = c.dialect.Conversation(c.request)
		if err := c.dispatch(settings); err != nil {
			return err
		}
		named, err := c.refusedFor()
		if err != nil {
			return err
		}
		if named == (dialect.Added{}) {
			if again && c.response.StatusCode < 400 {
				c.target.Refuse(refused.Bits()) // it was that, and not the harness's own use of the field
			}
			c.request.Forget()
			c.conversation.Forget()
			c.resendable.Store(false)
			if c.written.Load() { // or it is still on its way
				c.letGo()
			}
			return nil
		}
		// It may still be on its way for the first time: nothing is written over it.
		c.memory = bodyMemory{}
		c.request.Own(nil, 0)
		refused = refused.With(named)
		c.request.Object = asSent
	}
}

// refusedFor is the part of what was added that the upstream names in a refusal.
// A refusal that names nothing of it is the harness's.
func (c *call) refusedFor() (dialect.Added, error) {
	status := c.response.StatusCode
	if c.added == (dialect.Added{}) || status < 400 || status >= 500 {
		return dialect.Added{}, nil
	}
	refusal, err := c.readAnswer()
	c.response.Body.Close()
	if err != nil {
		return dialect.Added{}, err
	}
	c.response.Body = io.NopCloser(bytes.NewReader(refusal))
	return c.added.NamedIn(refusal), nil
}

// override applies what the session says to the request, and asks for what
// muxproxy wants to know unless the upstream has refused that.
func (c *call) override(settings *registry.Settings, refused dialect.Added) error {
	o := dialect.Overrides{
		Model:    settings.Model,
		Sampling: settings.Sampling,
		Yield:    settings.SamplingMode == registry.SamplingDefault,
	}
	switch {
	case !c.target.AsksUsage() || refused.Usage:
	case settings.HasTokenLimit:
		o.Usage = dialect.UsageRequired
	default:
		o.Usage = dialect.UsageAsked
	}
	o.Capture.Logprobs = settings.Capture.Logprobs && !refused.Logprobs
	if settings.Capture.TokenIDs && !refused.TokenIDs {
		o.Capture.TokenIDs = dialect.EngineOf(string(c.target.Style()))
	}
	var err error
	c.added, err = c.dialect.Override(c.request, o)
	return err
}

// dispatch records the request as it is sent, byte for byte, and sends it.
func (c *call) dispatch(settings *registry.Settings) error {
	body := c.request.Body()
	model := settings.Model
	if model == "" {
		model = c.request.Model
	}
	c.admitted.Record(registry.Request{
		Body: body, Shared: parts(c.request.Object), Model: model, Added: c.added.Bits(),
		Prefixes: c.conversation.Prefixes, TextPrefixes: c.conversation.TextPrefixes(), Follows: c.follows,
		List: c.conversation.List, Known: c.request.Known(),
	})

	c.resendable.Store(c.added != (dialect.Added{}))
	if !c.resendable.Load() {
		// An answer may take minutes, and the trace has the request: its bytes
		// are not kept for as long.
		c.request.Forget()
		c.conversation.Forget()
	}
	defer c.budget.stop()
	c.outgoing = upstream.Request{
		Method: http.MethodPost, Path: string(c.route), RawQuery: c.query(),
		Header: c.exchange.request.Header, Passes: c.passesUp, ID: c.requestID, Body: body, Caller: c,
		Affinity: settings.Affinity, SessionHeader: c.proxy.options.SessionHeader,
	}
	response, err := c.target.Send(c.ctx, &c.outgoing)
	if err != nil {
		return sendError(err)
	}
	c.response, c.replica = response, response.Replica
	c.upstreamRequestID = upstreamRequestID(response.Header)
	return nil
}

// Dispatching implements upstream.Caller: it starts the clocks of a call that
// nothing holds any more.
func (c *call) Dispatching() {
	c.budget.start(c.cancel, c.proxy.firstByte)
	if c.dispatched.IsZero() { // or the first refusal would count as muxproxy's own time
		c.dispatched = time.Now()
	}
}

// Written implements upstream.Caller.
func (c *call) Written() {
	c.written.Store(true)
	if !c.resendable.Load() {
		c.letGo()
	}
}

// letGo gives back what the request's body took: nobody will read it again.
func (c *call) letGo() {
	if !c.bodyGone.Swap(true) {
		c.memory.recycle() // before there is room for whoever may use it
		c.held.release()
	}
}

// Cancel implements upstream.Caller.
func (c *call) Cancel(cause error) { c.cancel(cause) }

// sharedFrom is the length from which a top-level value is worth being shared
// between the turns of a session.
const sharedFrom = 256

// parts are the values of a request that turns have in common: the messages,
// which grow, tools and system text, which stay.
func parts(object rawjson.Object) []registry.Part {
	var parts []registry.Part
	for _, m := range object.Members {
		if m.ValueEnd-m.ValueStart >= sharedFrom {
			parts = append(parts, registry.Part{Key: string(m.Key), Start: m.ValueStart, End: m.ValueEnd})
		}
	}
	return parts
}

// sendError is what a failed round trip amounts to.
func sendError(err error) error {
	if dial, ok := errors.AsType[*upstream.DialError](err); ok {
		if dial.Timeout {
			return &upstreamError{registry.FailureTimeout, http.StatusGatewayTimeout, codeUpstreamTimeout, "upstream timeout: " + budgetConnect + " budget ran out", err}
		}
		return &upstreamError{registry.FailureConnection, http.StatusBadGateway, codeUpstreamUnreachable, "upstream unreachable", err}
	}
	if _, ok := errors.AsType[*upstream.UnavailableError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*upstream.PausedError](err); ok {
		return err
	}
	return &upstreamError{
		registry.FailureConnection, http.StatusBadGateway, codeUpstreamUnreachable,
		"the connection to the upstream broke before it answered", err,
	}
}
