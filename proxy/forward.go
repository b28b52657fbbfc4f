package proxy

import (
	"context"
	"net/http"
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

// forward passes a request of a session up and its answer down, both whole.
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
	defer x.limitHeader(cancel)()
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
	answer, err := c.readAnswer()
	if err != nil {
		return gone(err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		x.outcome = outcomeOf(statusKind(response.StatusCode))
	}
	answerHeader(x.writer.Header(), response.Header)
	x.deliver(response.StatusCode, answer)
	return nil
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
