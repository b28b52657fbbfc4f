package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// passThrough serves a route that is no model call: it is neither limited nor
// recorded, and its body is the harness's own.
func (x *exchange) passThrough() error { return x.forwardBody(false) }

// passThroughModel serves one that is about the model of the session's calls,
// and so names that one if the session has one.
func (x *exchange) passThroughModel() error { return x.forwardBody(true) }

func (x *exchange) forwardBody(ofModel bool) error {
	session, err := x.authenticate()
	if err != nil {
		return err
	}
	body, err := x.readBody(x.request.Context())
	if err != nil {
		return gone(err)
	}
	defer x.held.release()
	settings := session.Settings()
	if object, err := rawjson.ParseObject(body, nil); ofModel && err == nil && settings.Model != "" {
		if object.Count("model") > 1 {
			return &dialect.RequestError{Param: "model", Message: `the field "model" stands more than once in the body`}
		}
		body = object.Apply([]rawjson.Edit{{Key: "model", Value: rawjson.Quote(nil, settings.Model)}})
	}
	return x.forward(session, string(x.route), body)
}

// forward passes a request of a session up and its answer down.
func (x *exchange) forward(session *registry.Session, path string, body []byte) error {
	settings := session.Settings()
	x.upstream = settings.Upstream
	target, ok := x.proxy.options.Upstreams.Get(settings.Upstream)
	if !ok {
		return errNotConfigured
	}
	ctx, cancel := context.WithCancelCause(x.request.Context())
	defer cancel(nil)
	stop := context.AfterFunc(session.Life(), func() { cancel(context.Cause(session.Life())) })
	defer stop()
	stopLimit := x.limitHeader(cancel)
	defer stopLimit()
	c := &call{exchange: x, session: session, ctx: ctx, cancel: cancel}
	defer c.budget.stop()
	response, err := target.Send(ctx, &upstream.Request{
		Method: x.request.Method, Path: path, RawQuery: x.query(),
		Header: x.request.Header, Passes: x.passesUp, ID: x.requestID, Body: body, Caller: c,
		Affinity: settings.Affinity, SessionHeader: x.proxy.options.SessionHeader,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return gone(cause)
		}
		return sendError(err)
	}
	defer response.Body.Close()
	c.response, c.replica = response, response.Replica
	c.upstreamRequestID = upstreamRequestID(response.Header)
	if err := c.judge(); err != nil {
		return err
	}
	if x.request.Method == http.MethodHead {
		answerHeader(x.writer.Header(), response.Header)
		x.writer.Header()["Content-Length"] = response.Header["Content-Length"]
		x.begin(response.StatusCode)
		return nil
	}
	return c.passDown(stopLimit)
}

// longAnswer is the length from which an answer that is passed through is long.
const longAnswer = 1 << 20

// passDown passes the upstream's answer on. It is held until it is whole, so that
// what goes wrong is told by a status. A long one, which could take any amount of
// memory, goes on as it comes once so much of it is there; begins is called then.
func (c *call) passDown(begins func()) error {
	size, most := c.response.ContentLength, c.proxy.options.MaxBodyBytes
	if size > most {
		return tooLong(most)
	}
	c.budget.start(c.cancel, c.proxy.idle)
	c.answer = renewingReader{c.response.Body, &c.budget}
	body, err := readLimited(io.LimitReader(&c.answer, longAnswer), min(size, longAnswer), most, &c.last, slices.Grow)
	c.budget.stop()
	c.answered = time.Now()
	if err != nil {
		return gone(c.readError(err))
	}
	status := c.response.StatusCode
	if status >= http.StatusBadRequest {
		c.outcome = outcomeOf(statusKind(status))
	}
	h := c.writer.Header()
	answerHeader(h, c.response.Header)
	if len(body) < longAnswer {
		c.deliver(status, body)
		return nil
	}
	begins()
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	c.begin(status)
	if err := c.passRest(body); err != nil {
		c.brokeOff(err)
	}
	return nil
}

// passRest writes what has come of an answer, and then the rest as it comes.
func (c *call) passRest(piece []byte) error {
	buf, most := make([]byte, firstHeld), c.proxy.options.MaxBodyBytes
	var ended error
	for length := int64(0); ; {
		if length += int64(len(piece)); length > most {
			return tooLong(most)
		}
		if err := c.write(piece); err != nil {
			return clientGone(err)
		}
		switch {
		case errors.Is(ended, io.EOF):
			return nil
		case ended != nil:
			return gone(c.readError(ended))
		}
		c.budget.start(c.cancel, c.proxy.idle) // not while the client is written to
		var n int
		n, ended = c.answer.Read(buf)
		c.budget.stop()
		c.answered = time.Now()
		piece = buf[:n]
	}
}

// limitHeader gives up what is passed through before the public side of the server
// does. It cannot begin early: only the upstream knows its status and header.
func (x *exchange) limitHeader(cancel context.CancelCauseFunc) (stop func()) {
	limit := x.proxy.options.HeaderLimit
	if limit <= 0 {
		return func() {}
	}
	timer := time.AfterFunc(limit*9/10-x.held.waited, func() { cancel(&timeoutError{budgetHeader, limit}) })
	return func() { timer.Stop() }
}

// gone names the end of a request's own context, which says only that it was
// cancelled: net/http does that when the client leaves.
func gone(err error) error {
	if err == context.Canceled { //nolint:errorlint // wrapped ones come from elsewhere
		return errClientGone
	}
	return err
}
