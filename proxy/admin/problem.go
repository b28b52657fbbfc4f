package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// The codes a Problem may carry: a closed set that clients may branch on.
const (
	codeInvalidRequest  = "invalid_request"
	codeUnauthorized    = "unauthorized"
	codeNotFound        = "not_found"
	codeNotAllowed      = "method_not_allowed"
	codeRequestTimeout  = "request_timeout"
	codeDuplicateID     = "duplicate_id"
	codeSessionEnded    = "session_ended"
	codeBodyTooLarge    = "body_too_large"
	codeMediaType       = "unsupported_media_type"
	codeTooManySessions = "too_many_sessions"
	codeMemoryFull      = "memory_full"
	codeCommitFailed    = "commit_failed"
	codeDraining        = "draining"
	codePoolWaiting     = "pool_waiting"
	codePoolFull        = "pool_full"
	codeTunnelFailed    = "tunnel_failed"
	codeTunnelBacklog   = "tunnel_backlog"
	codePauseOver       = "pause_over"
	codeNotReady        = "not_ready"
	codeInternal        = "internal"
)

// What a refusal that time can cure tells the client to wait.
const (
	retryAfter        = 5 * time.Second
	retryAfterBacklog = time.Minute // minutes of openings are due already
)

// FieldError says what is wrong with one part of a request. It never repeats
// the value, which may be a secret.
type FieldError struct {
	Message  string `json:"message" doc:"What is wrong."`
	Location string `json:"location,omitempty" doc:"Where, e.g. body.limits.max_turns or query.cursor."`
}

func (e FieldError) Error() string { return describe([]FieldError{e}) }

// ErrorDetail is how huma takes it; see [huma.ErrorDetailer].
func (e FieldError) ErrorDetail() *huma.ErrorDetail {
	return &huma.ErrorDetail{Message: e.Message, Location: e.Location}
}

// Problem is the answer to a request that could not be served (RFC 9457).
//
//nolint:errname // its name is the one of its schema in the OpenAPI document
type Problem struct {
	Type   string       `json:"type" doc:"Always about:blank; code is what to branch on." example:"about:blank"`
	Title  string       `json:"title" doc:"The meaning of the status." example:"Unprocessable Entity"`
	Status int          `json:"status" doc:"The HTTP status." example:"422"`
	Code   string       `json:"code" doc:"A short name of the problem, from a closed set." example:"invalid_request"`
	Detail string       `json:"detail" doc:"What happened, for a person." example:"body.limits.max_turns: expected number >= 0"`
	Errors []FieldError `json:"errors,omitempty" doc:"Every part of the request that is wrong."`

	headers http.Header
}

func newProblem(status int, code, detail string, fields ...FieldError) *Problem {
	title := http.StatusText(status)
	if title == "" {
		title = "Client Closed Request"
	}
	return &Problem{Type: "about:blank", Title: title, Status: status, Code: code, Detail: detail, Errors: fields}
}

// invalid is the problem of a request whose parts named in fields are wrong.
func invalid(fields ...FieldError) *Problem {
	return newProblem(http.StatusUnprocessableEntity, codeInvalidRequest, describe(fields), fields...)
}

// retriable is the problem of a request that may succeed after a while.
func retriable(after time.Duration, status int, code, detail string) *Problem {
	p := newProblem(status, code, detail)
	p.headers = http.Header{"Retry-After": {strconv.Itoa(int(after / time.Second))}}
	return p
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status; huma asks for it.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns headers that go with the answer; huma asks for them.
func (p *Problem) GetHeaders() http.Header { return p.headers }

// ContentType makes the answer application/problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func describe(fields []FieldError) string {
	parts := make([]string, 0, len(fields))
	for _, f := range fields {
		if f.Location == "" {
			parts = append(parts, f.Message)
			continue
		}
		parts = append(parts, f.Location+": "+f.Message)
	}
	return strings.Join(parts, "; ")
}

// problemOf is the one table from errors to answers. ok is false for errors
// that are faults of the daemon, which the caller logs.
func problemOf(err error) (p *Problem, ok bool) {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p, true
	}
	if e, ok := errors.AsType[*registry.InvalidError](err); ok {
		return invalid(FieldError{Message: e.Message, Location: bodyField(e.Field)}), true
	}
	if e, ok := errors.AsType[*upstream.InvalidError](err); ok {
		return invalid(FieldError{Message: e.Message, Location: bodyField(e.Field)}), true
	}
	if e, ok := errors.AsType[*registry.EndedError](err); ok {
		return newProblem(http.StatusGone, codeSessionEnded, fmt.Sprintf("session %s has ended: %s", e.ID, e.Reason)), true
	}
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return newProblem(http.StatusNotFound, codeNotFound, "no such session"), true
	case errors.Is(err, registry.ErrDuplicateID):
		return newProblem(http.StatusConflict, codeDuplicateID, "a session, tombstone or trace of this id is kept; only a live one's own secret and body register it again",
			FieldError{Message: "in use", Location: "body.id"}), true
	case errors.Is(err, registry.ErrTooManySessions):
		return retriable(retryAfter, http.StatusTooManyRequests, codeTooManySessions, "this instance has as many sessions as it may"), true
	case errors.Is(err, registry.ErrTraceMemoryFull):
		return retriable(retryAfter, http.StatusServiceUnavailable, codeMemoryFull, "traces fill the memory they may use; read and purge ended sessions"), true
	case errors.Is(err, registry.ErrNotWritten):
		return retriable(retryAfter, http.StatusServiceUnavailable, codeCommitFailed, "the journal could not be written: "+err.Error()), true
	case errors.Is(err, registry.ErrDraining):
		return retriable(retryAfter, http.StatusServiceUnavailable, codeDraining, "this instance is shutting down"), true
	case errors.Is(err, context.Canceled):
		return newProblem(statusClientClosed, codeRequestTimeout, "the client has gone"), true
	}
	return newProblem(http.StatusInternalServerError, codeInternal, "internal error"), false
}

// statusClientClosed is what logs show for a client that left; it is not on
// the wire, where nobody reads any more.
const statusClientClosed = 499

func bodyField(field string) string {
	if field == "" {
		return "body"
	}
	return "body." + field
}

// fromHuma turns the problems that huma finds by itself (shape and types of
// the request) into ours, without the values it quotes.
func fromHuma(hctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := newProblem(m.Status, codeOfStatus(m.Status), m.Detail)
	if m.Status >= http.StatusInternalServerError {
		p.Detail = "internal error"
		return p, nil
	}
	if m.Status == http.StatusUnsupportedMediaType {
		p.Detail = "send the body as Content-Type: application/json"
		return p, nil
	}
	for _, e := range m.Errors {
		if e != nil {
			p.Errors = append(p.Errors, fieldOf(e))
		}
	}
	if hctx.Operation().OperationID == patchSession {
		explainFixed(p.Errors)
	}
	if len(p.Errors) > 0 {
		p.Detail = describe(p.Errors)
	}
	return p, nil
}

// fieldOf restores the location of a fault that [inexact] has found: of an error
// in decoding huma keeps only the text.
func fieldOf(e *huma.ErrorDetail) FieldError {
	f := FieldError{e.Message, e.Location}
	for _, message := range []string{unexpectedField, noInteger} {
		if at, found := strings.CutSuffix(e.Message, ": "+message); found && e.Location == "body" {
			f = FieldError{message, at}
		}
	}
	if f.Message == unexpectedField && strings.HasSuffix(f.Location, "_seconds") {
		f.Message += ": a duration is taken under a name without _seconds"
	}
	return f
}

func codeOfStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return codeUnauthorized
	case http.StatusNotFound:
		return codeNotFound
	case http.StatusMethodNotAllowed:
		return codeNotAllowed
	case http.StatusRequestTimeout:
		return codeRequestTimeout
	case http.StatusRequestEntityTooLarge:
		return codeBodyTooLarge
	case http.StatusUnsupportedMediaType:
		return codeMediaType
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return codeInvalidRequest
	}
	return codeInternal
}
