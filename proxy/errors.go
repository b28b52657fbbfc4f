package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// The refusals that carry nothing but their identity.
var (
	errUpgrade       = errors.New("websockets are not supported; use HTTP with server-sent events")
	errBytesBusy     = errors.New("too many request bytes are in flight; try again later")
	errClientGone    = errors.New("the client has left")
	errUpload        = errors.New("the request body did not arrive")
	errTailOver      = errors.New("the upstream kept its stream open after the end")
	errNotConfigured = errors.New("the session's upstream is not configured")
	errJoinedNothing = errors.New("the call that this retry joined ended without an answer")
	errKeptTooMuch   = errors.New("too much is kept for retries")
)

// errAborted is a generation that the upstream gave up, for instance to update
// its weights. It never looks like an answer.
var errAborted = &upstreamError{
	kind: registry.FailureAborted, status: http.StatusServiceUnavailable, code: codeUpstreamUnavailable,
	message: "the upstream aborted the generation",
}

// routeError is a path that is no route. It is left empty when it cannot be
// repeated.
type routeError struct{ method, path string }

func (e *routeError) Error() string {
	if e.path == "" {
		return "there is no such route"
	}
	return fmt.Sprintf("there is no route %.10s %.100q", e.method, e.path)
}

// methodError is a method that a route does not have.
type methodError struct{ allow string }

func (e *methodError) Error() string { return "this route takes " + e.allow }

// codingError is a content coding that muxproxy does not decode.
type codingError struct{ coding string }

func (e *codingError) Error() string {
	return fmt.Sprintf("content coding %.40q is not supported: send the body as it is or gzipped", e.coding)
}

// sizeError is a request body over the limit.
type sizeError struct{ limit int64 }

func (e *sizeError) Error() string {
	return fmt.Sprintf("the request body is over the limit of %d bytes", e.limit)
}

// timeoutError is an upstream budget that ran out.
type timeoutError struct {
	budget string
	after  time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("upstream timeout: %s budget of %s ran out", e.budget, e.after)
}

// upstreamError is an upstream whose answer cannot be passed on.
type upstreamError struct {
	kind    registry.FailureKind
	status  int    // to answer
	code    string // to answer
	message string // for the harness
	cause   error  // for the log and the trace; may name addresses
}

func (e *upstreamError) Error() string {
	if e.cause == nil {
		return e.message
	}
	return e.message + ": " + e.cause.Error()
}

// commitError is a turn that was answered but not recorded.
type commitError struct{ err error }

func (e *commitError) Error() string { return "the turn could not be recorded: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// A refusal is how an error is told to the harness and counted.
type refusal struct {
	status     int
	code       string
	reason     metrics.Reason // "" when it is no refusal of muxproxy's own
	outcome    metrics.Outcome
	retryAfter time.Duration // 0 sends no Retry-After
	final      bool          // a retry cannot help: x-should-retry: false

	message, param, stopCondition, allow string
}

// refusalOf is the one table of errors to statuses. 408 and 409 are not in it:
// SDKs retry those.
func refusalOf(err error) refusal {
	r := refusal{outcome: metrics.OutcomeRefused, message: err.Error()}
	as := func(status int, code string, reason metrics.Reason) refusal {
		r.status, r.code, r.reason = status, code, reason
		r.final = status < 500 && status != http.StatusTooManyRequests
		return r
	}
	if errors.Is(err, registry.ErrUnknownSecret) {
		r.message = "no session has this key; send the session's secret as a bearer token or in x-api-key"
		return as(http.StatusUnauthorized, "invalid_api_key", metrics.ReasonInvalidAPIKey)
	}
	if commit, ok := errors.AsType[*commitError](err); ok && !errors.Is(commit.err, registry.ErrSealed) {
		r.outcome, r.retryAfter = metrics.OutcomeCommitFailed, time.Second
		return as(http.StatusServiceUnavailable, "commit_failed", "")
	}
	if errors.Is(err, registry.ErrSessionEnded) || errors.Is(err, registry.ErrSealed) {
		return as(http.StatusGone, "session_ended", metrics.ReasonSessionEnded)
	}
	if stopped, ok := errors.AsType[*registry.StoppedError](err); ok {
		r.stopCondition = stopped.Condition
		return as(http.StatusBadRequest, "session_stopped", metrics.ReasonSessionStopped)
	}
	if invalid, ok := errors.AsType[*dialect.RequestError](err); ok {
		r.param = invalid.Param
		return as(http.StatusBadRequest, "invalid_request", metrics.ReasonInvalidRequest)
	}
	if errors.Is(err, errUpload) {
		if _, broken := errors.AsType[net.Error](err); broken {
			r.message = errUpload.Error() // the rest of it names addresses
		}
		return as(http.StatusBadRequest, "invalid_request", metrics.ReasonInvalidRequest)
	}
	if _, ok := errors.AsType[*routeError](err); ok {
		return as(http.StatusNotFound, "not_found", metrics.ReasonNotFound)
	}
	if _, ok := errors.AsType[*modelError](err); ok {
		r.param = "model"
		return as(http.StatusNotFound, "model_not_found", metrics.ReasonNotFound)
	}
	if method, ok := errors.AsType[*methodError](err); ok {
		r.allow = method.allow
		return as(http.StatusMethodNotAllowed, "method_not_allowed", metrics.ReasonMethodNotAllowed)
	}
	if _, ok := errors.AsType[*sizeError](err); ok {
		return as(http.StatusRequestEntityTooLarge, "body_too_large", metrics.ReasonBodyTooLarge)
	}
	if _, ok := errors.AsType[*codingError](err); ok {
		return as(http.StatusUnsupportedMediaType, "unsupported_media_type", metrics.ReasonUnsupportedMediaType)
	}
	if errors.Is(err, errUpgrade) {
		return as(http.StatusUpgradeRequired, "upgrade_required", metrics.ReasonUpgradeRequired)
	}
	if busy, ok := errors.AsType[*registry.BusyError](err); ok {
		r.retryAfter = busy.RetryAfter
		return as(http.StatusTooManyRequests, "rate_limited", busyReason(busy.What))
	}
	if _, ok := errors.AsType[*hook.Error](err); ok {
		return as(http.StatusBadGateway, "hook_failed", metrics.ReasonHookFailed)
	}
	if errors.Is(err, errBytesBusy) {
		r.retryAfter = time.Second
		return as(http.StatusTooManyRequests, "rate_limited", metrics.ReasonInflightBytes)
	}
	if errors.Is(err, registry.ErrDraining) {
		r.retryAfter = time.Second
		r.message = "muxproxy is shutting down"
		return as(http.StatusServiceUnavailable, "draining", metrics.ReasonDraining)
	}
	return callRefusal(err, r)
}

// callRefusal is the part of the table for calls that were admitted.
func callRefusal(err error, r refusal) refusal {
	as := func(status int, code string, outcome metrics.Outcome) refusal {
		r.status, r.code, r.outcome = status, code, outcome
		return r
	}
	if errors.Is(err, errJoinedNothing) {
		r.retryAfter, r.reason = time.Second, metrics.ReasonJoinedCallFailed
		return as(http.StatusServiceUnavailable, "joined_call_failed", metrics.OutcomeRefused)
	}
	if unavailable, ok := errors.AsType[*upstream.UnavailableError](err); ok {
		r.retryAfter, r.reason = unavailable.RetryAfter, metrics.ReasonUpstreamUnavailable
		return as(http.StatusServiceUnavailable, codeUpstreamUnavailable, metrics.OutcomeRefused)
	}
	if paused, ok := errors.AsType[*upstream.PausedError](err); ok {
		r.retryAfter, r.reason = max(paused.RetryAfter, time.Second), metrics.ReasonPaused
		return as(http.StatusTooManyRequests, "paused", metrics.OutcomeRefused)
	}
	if _, ok := errors.AsType[*upstream.AbortedError](err); ok {
		r.retryAfter = time.Second
		return as(http.StatusServiceUnavailable, codeUpstreamUnavailable, metrics.OutcomeAborted)
	}
	if errors.Is(err, errNotConfigured) {
		r.retryAfter, r.reason = time.Second, metrics.ReasonUpstreamUnavailable
		return as(http.StatusServiceUnavailable, codeUpstreamUnavailable, metrics.OutcomeRefused)
	}
	if _, ok := errors.AsType[*timeoutError](err); ok {
		return as(http.StatusGatewayTimeout, codeUpstreamTimeout, metrics.OutcomeUpstreamTimeout)
	}
	if failed, ok := errors.AsType[*upstreamError](err); ok {
		r.final, r.message = failed.code == codeUpstreamAuth, failed.message
		if failed.status == http.StatusServiceUnavailable {
			r.retryAfter = time.Second
		}
		return as(failed.status, failed.code, outcomeOf(failed.kind))
	}
	if errors.Is(err, errClientGone) {
		return as(statusClientGone, "client_disconnected", metrics.OutcomeClientDisconnected)
	}
	r.message = "internal error"
	return as(http.StatusInternalServerError, "internal_error", metrics.OutcomeAborted)
}

// The codes of an upstream that cannot be used.
const (
	codeUpstreamUnreachable = "upstream_unreachable"
	codeUpstreamInvalid     = "upstream_invalid"
	codeUpstreamAuth        = "upstream_auth"
	codeUpstreamUnavailable = "upstream_unavailable"
	codeUpstreamTimeout     = "upstream_timeout"
	codeUpstreamError       = "upstream_error" // only inside of an answer that has begun
)

// statusClientGone is nginx's status for a client that left before its answer.
// It is recorded, never sent.
const statusClientGone = 499

func busyReason(what string) metrics.Reason {
	switch what {
	case registry.BusyMaxInflight:
		return metrics.ReasonSessionInflight
	case registry.BusyRequestsPerSecond:
		return metrics.ReasonSessionRate
	default:
		return metrics.ReasonInstance
	}
}

// refuse answers with an error of muxproxy's own. Nothing was answered yet.
func (x *exchange) refuse(err error) {
	if x.claim.attempt != nil {
		x.proxy.attempts.failed(x.claim)
	}
	r := refusalOf(err)
	x.outcome, x.err, x.stream = r.outcome, err, false
	if !x.dispatched.IsZero() && failureKind(err) == registry.FailureCancelled {
		x.outcome, r.reason = metrics.OutcomeCancelled, "" // the call was under way, not refused
	}
	if r.reason != "" {
		x.proxy.options.Metrics.Refusal(r.reason)
	}
	if r.status == statusClientGone {
		x.status, x.broken = r.status, true // or net/http would answer with an empty 200
		x.boundRest()
		return
	}
	if x.isBegun() {
		x.tellEarly(r.body())
		return
	}
	h := x.writer.Header()
	h.Set("Content-Type", "application/json")
	if r.allow != "" {
		h.Set("Allow", r.allow)
	}
	if r.final {
		h.Set("X-Should-Retry", "false")
	}
	if r.status == http.StatusUpgradeRequired {
		h.Set("Connection", "close")
	}
	if r.retryAfter > 0 {
		seconds := min(max(int64((r.retryAfter+time.Second-1)/time.Second), 1), 60)
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if r.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	x.deliver(r.status, x.dialect.ErrorBody(r.body()))
}

// body is the refusal as a dialect tells it.
func (r refusal) body() dialect.Error {
	return dialect.Error{Status: r.status, Code: r.code, Param: r.param, Message: r.message, StopCondition: r.stopCondition}
}
