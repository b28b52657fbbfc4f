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
// The one request that is sent twice is one that the upstream refused for
// naming a field that muxproxy had added: nothing was generated for it. If it
// is served without, the upstream is not asked that way again.
func (c *call) send(settings *registry.Settings) error {
	asSent := c.request.Object
	if err := c.override(settings, c.wish(settings)); err != nil {
		return err
	}
	if c.added == (dialect.Added{}) {
		asSent = rawjson.Object{} // it is sent once, and then let go
	}
	if err := c.dispatch(settings); err != nil {
		return err
	}
	status := c.response.StatusCode
	if c.added == (dialect.Added{}) || status < 400 || status >= 500 {
		return nil
	}
	refusal, err := c.readAnswer()
	c.response.Body.Close()
	if err != nil {
		return err
	}
	if !namesAny(refusal, c.added.Fields()) {
		c.response.Body = io.NopCloser(bytes.NewReader(refusal))
		return nil
	}
	c.request.Object = asSent
	if err := c.override(settings, dialect.UsageAsIs); err != nil {
		return err
	}
	if err := c.dispatch(settings); err != nil {
		return err
	}
	if c.response.StatusCode < 400 {
		c.target.StopAskingUsage() // it was that, and not the harness's own use of the field
	}
	return nil
}

// override applies what the session says to the request.
func (c *call) override(settings *registry.Settings, usage dialect.UsageWish) error {
	var err error
	c.added, err = c.dialect.Override(c.request, dialect.Overrides{
		Model:    settings.Model,
		Sampling: settings.Sampling,
		Yield:    settings.SamplingMode == registry.SamplingDefault,
		Usage:    usage,
	})
	return err
}

// wish is how much muxproxy wants to know a stream's usage.
func (c *call) wish(settings *registry.Settings) dialect.UsageWish {
	switch {
	case !c.target.AsksUsage():
		return dialect.UsageAsIs
	case settings.HasTokenLimit:
		return dialect.UsageRequired
	default:
		return dialect.UsageAsked
	}
}

func namesAny(text []byte, names []string) bool {
	for _, name := range names {
		if bytes.Contains(text, []byte(name)) {
			return true
		}
	}
	return false
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
	})

	var written func()
	if c.added == (dialect.Added{}) {
		// An answer may take minutes, and the trace has the request: its bytes
		// are not kept for as long.
		c.request.Object, written = rawjson.Object{}, c.held.release
		c.conversation.Forget()
	}
	defer c.budget.stop()
	response, err := c.target.Send(c.ctx, &upstream.Request{
		Method: http.MethodPost, Path: string(c.route), RawQuery: c.query(),
		Header: c.upstreamHeader(), Body: body, Written: written, Dispatching: c.dispatching, Cancel: c.cancel,
		Affinity: settings.Affinity, SessionHeader: c.proxy.options.SessionHeader,
	})
	if err != nil {
		return sendError(err)
	}
	c.response, c.replica = response, response.Replica
	c.upstreamRequestID = upstreamRequestID(response.Header)
	return nil
}

// dispatching starts the clocks of a call that nothing holds any more.
func (c *call) dispatching() {
	c.budget.start(c.cancel, c.proxy.firstByte)
	if c.dispatched.IsZero() { // or the first refusal would count as muxproxy's own time
		c.dispatched = time.Now()
	}
}

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
