package proxy

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// respond passes the upstream's answer on in the way that its head asks for.
// An error means that the client was not answered yet.
func (c *call) respond() error {
	if err := c.judge(); err != nil {
		return c.failed(err, nil)
	}
	if c.response.StatusCode >= http.StatusBadRequest {
		return c.passError()
	}
	if c.mediaType() == "text/event-stream" {
		return c.relayStream()
	}
	return c.relayJSON()
}

// judge refuses what cannot be shown to a harness, and sees to the decoding of
// the rest.
func (c *call) judge() error {
	c.answered = time.Now()
	status := c.response.StatusCode
	switch {
	case status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
		// Its body may quote the credential, and the harness cannot do anything about it.
		return &upstreamError{
			kind: registry.FailureAuth, status: http.StatusBadGateway, code: codeUpstreamAuth,
			message: fmt.Sprintf("the upstream refused muxproxy's credential (status %d)", status),
		}
	case status >= 300 && status < 400:
		return unusable(fmt.Sprintf("the upstream answered with a redirect (status %d)", status))
	case status < http.StatusBadRequest && c.mediaType() == "text/html":
		return unusable("the upstream answered with an HTML page")
	}
	gzipped, err := isGzip(c.response.Header)
	if err != nil {
		return unusable("the upstream's answer: " + err.Error())
	}
	if gzipped {
		c.response.Body = &gzipBody{compressed: c.response.Body}
		c.response.ContentLength = -1
	}
	return nil
}

// mediaType is the type of the answer without its parameters.
func (c *call) mediaType() string {
	mediaType, _, _ := strings.Cut(c.response.Header.Get("Content-Type"), ";")
	return strings.ToLower(trimSpace(mediaType))
}

func unusable(message string) error {
	return &upstreamError{
		kind: registry.FailureUpstreamError, status: http.StatusBadGateway, code: codeUpstreamInvalid, message: message,
	}
}

// passError passes an upstream's refusal on as it is.
func (c *call) passError() error {
	body, err := c.readAnswer()
	if err != nil {
		return c.failed(err, body)
	}
	status := c.response.StatusCode
	kind := statusKind(status)
	c.outcome = outcomeOf(kind)
	c.stream = false
	h := c.writer.Header()
	answerHeader(h, c.response.Header)
	if dialect.ContextOverflow(status, body) {
		c.overflow()
	}
	message := fmt.Sprintf("the upstream answered with status %d", status)
	c.fail(kind, status, message, body)
	if c.isBegun() {
		c.tellEarly(dialect.Error{Status: status, Code: codeUpstreamError, Message: fmt.Sprintf("%s: %.2000s", message, body)})
		return nil
	}
	c.deliver(status, body)
	return nil
}

// failedInBand records a call that was answered with an error inside a 200.
func (c *call) failedInBand(message string, received []byte) {
	c.stopAtOverflow(message)
	c.fail(registry.FailureUpstreamError, c.response.StatusCode, message, received)
}

// stopAtOverflow looks whether that is the error that an upstream reports inside
// a 200.
func (c *call) stopAtOverflow(message string) {
	if dialect.ContextOverflow(http.StatusBadRequest, []byte(message)) {
		c.overflow()
	}
}

// overflow ends the session's turns: its conversation fits the model no more.
func (c *call) overflow() {
	c.admitted.StopSession(registry.ConditionContextLength)
	c.writer.Header().Set("X-Should-Retry", "false")
}

func statusKind(status int) registry.FailureKind {
	switch {
	case status == http.StatusTooManyRequests:
		return registry.FailureRateLimit
	case status == http.StatusForbidden:
		return registry.FailureAuth
	case status >= 500:
		return registry.FailureUpstreamError
	default:
		return registry.FailureClientError
	}
}

// readAnswer reads the upstream's whole body under the idle budget. With an
// error it returns what had come.
func (c *call) readAnswer() ([]byte, error) {
	c.budget.start(c.cancel, c.proxy.idle)
	defer c.budget.stop()
	c.answer = renewingReader{c.response.Body, &c.budget}
	body, err := readLimited(&c.answer, c.response.ContentLength, c.proxy.options.MaxBodyBytes, &c.last, slices.Grow)
	c.answered = time.Now()
	if err != nil {
		err = c.readError(err)
	}
	return body, err
}

// readError is what a body amounts to that could not be read to its end.
func (c *call) readError(err error) error {
	if _, ok := errors.AsType[*sizeError](err); ok {
		return tooLong(c.proxy.options.MaxBodyBytes)
	}
	if cause := context.Cause(c.ctx); cause != nil {
		return cause
	}
	return truncated(err)
}

func tooLong(limit int64) error {
	return unusable(fmt.Sprintf("the upstream's answer is over the limit of %d bytes", limit))
}

func truncated(err error) error {
	return &upstreamError{
		registry.FailureUpstreamTruncated, http.StatusBadGateway, codeUpstreamInvalid,
		"the upstream's answer broke off", err,
	}
}

// renewingReader gives each read the whole of a budget.
type renewingReader struct {
	io.Reader
	budget *budget
}

func (r *renewingReader) Read(b []byte) (int, error) {
	r.budget.renew()
	return r.Reader.Read(b)
}

// gzipBody decodes a body as it is read: making the decoder already reads.
type gzipBody struct {
	compressed io.ReadCloser
	decoder    *gzip.Reader
}

func (g *gzipBody) Read(b []byte) (int, error) {
	if g.decoder == nil {
		var err error
		if g.decoder, err = gzip.NewReader(g.compressed); err != nil {
			return 0, err
		}
	}
	return g.decoder.Read(b)
}

func (g *gzipBody) Close() error { return g.compressed.Close() }

// deliver answers with a whole body and says whether all of it was written.
func (x *exchange) deliver(status int, body []byte) bool {
	x.length[0] = strconv.Itoa(len(body))
	x.writer.Header()["Content-Length"] = x.length[:]
	x.begin(status)
	err := x.writeEnd(body)
	if err != nil {
		x.lost(err)
	}
	return err == nil
}

// lost notes that the client did not get its answer to the end.
func (x *exchange) lost(err error) {
	x.err, x.outcome, x.end, x.broken = clientGone(err), metrics.OutcomeClientDisconnected, "client_gone", true
}

// clientGone is a failed write to the client.
func clientGone(err error) error {
	if errors.Is(err, errClientGone) {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: it stopped reading", errClientGone)
	}
	return fmt.Errorf("%w: %w", errClientGone, err)
}

// writeChunk bounds what one write deadline is for: a slow client that reads
// steadily must not be cut for the length of its answer.
const writeChunk = 256 << 10

// write sends all of b to the client now. Each chunk has a deadline of its own.
func (x *exchange) write(b []byte) error {
	for {
		chunk := b[:min(len(b), writeChunk)]
		b = b[len(chunk):]
		x.renewWriteDeadline()
		n, err := x.writer.Write(chunk)
		x.bytesOut += int64(n)
		if err == nil {
			err = x.control.Flush()
		}
		if err != nil || len(b) == 0 {
			return err
		}
	}
}

// writeEnd writes what was held until the upstream had answered.
func (x *exchange) writeEnd(b []byte) error {
	runtime.Gosched() // before a write whoever is ready comes first, as upstream
	start := time.Now()
	err := x.write(b)
	x.delivery += time.Since(start)
	return err
}

// renewWriteDeadline gives what is written next its time: at least three
// quarters of it, because setting a deadline costs more than reading the clock.
// A failure shows in the write itself, or the writer knows no deadlines.
func (x *exchange) renewWriteDeadline() {
	now := time.Now()
	if now.Sub(x.renewed) < x.proxy.options.WriteTimeout/4 {
		return
	}
	x.renewed = now
	_ = x.control.SetWriteDeadline(now.Add(x.proxy.options.WriteTimeout))
}
