package prime

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/muxproxy/muxproxy/tunnel"
)

// maxDetail bounds what is shown of the control plane's own words.
const maxDetail = 300

// notMadeError says that a creation certainly made nothing.
type notMadeError struct{ error }

// Unwrap is why.
func (e *notMadeError) Unwrap() error { return e.error }

// apiError is an answer that is no success.
type apiError struct {
	status     int
	detail     string
	retryAfter time.Duration
}

// Error is the status and what the control plane said about it.
func (e *apiError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("status %d: %s", e.status, e.detail), ": ")
}

func isNotFound(err error) bool {
	refused, ok := errors.AsType[*apiError](err)
	return ok && refused.status == http.StatusNotFound
}

// refusal is what the answer means. Below 500 the control plane has looked at
// the request and made nothing of it.
func (c *client) refusal(r *http.Response, body []byte) error {
	e := &apiError{status: r.StatusCode, detail: c.detail(body), retryAfter: retryAfter(r.Header)}
	if e.status < 500 && e.status != http.StatusRequestTimeout {
		return &notMadeError{e}
	}
	return e
}

// detail is the answer's "detail", which may be any JSON, or else its text.
func (c *client) detail(body []byte) string {
	text := string(body)
	var problem struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &problem) == nil && len(problem.Detail) > 0 {
		text = string(problem.Detail)
		var words string
		if json.Unmarshal(problem.Detail, &words) == nil {
			text = words
		}
	}
	text = strings.ReplaceAll(text, c.key, "(hidden)")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "..."
	}
	return text
}

const (
	// maxRetryAfter bounds how long the control plane can stop us for.
	maxRetryAfter = 10 * time.Minute
	// unsaidRetryAfter is how long to hold back when it refuses without saying:
	// it counts by the minute.
	unsaidRetryAfter = 10 * time.Second
)

// retryAfter is a Retry-After of either form, zero if there is none.
func retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	var wait time.Duration
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds < maxRetryAfter.Seconds() {
		wait = time.Duration(seconds * float64(time.Second))
	} else if err == nil {
		wait = maxRetryAfter
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// openError is what a failed creation is to the pool.
func openError(err error) error {
	err = fmt.Errorf("create tunnel: %w", err)
	refused, ok := errors.AsType[*apiError](err)
	if !ok {
		return &tunnel.TransientError{Err: err}
	}
	switch status := refused.status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return &tunnel.AuthError{Err: err}
	case status == http.StatusTooManyRequests:
		return &tunnel.RateLimitError{RetryAfter: cmp.Or(refused.retryAfter, unsaidRetryAfter), Err: err}
	case status == http.StatusBadRequest && strings.Contains(strings.ToLower(refused.detail), "maximum number of"):
		return &tunnel.QuotaError{Err: err}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusConflict:
		return &tunnel.TransientError{Err: err}
	}
	return &tunnel.ConfigError{Err: err}
}
