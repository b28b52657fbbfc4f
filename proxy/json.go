package proxy

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// relayJSON holds the whole answer, which is recorded anyway, commits it and
// only then lets it go.
func (c *call) relayJSON() error {
	c.stream = false
	c.firstEvent = c.sinceDispatch()
	body, err := c.readAnswer()
	if err != nil {
		return c.failed(err, body)
	}
	if cap(body)-len(body) > len(body)/4 {
		body = bytes.Clone(body) // its length was not announced, and the trace keeps all of its memory
	}
	result, err := c.dialect.Response(body, c.conversation)
	if err != nil {
		return c.failed(invalidAnswer(err, len(body)), body)
	}
	status := c.response.StatusCode
	switch {
	case result.Aborted:
		return c.failed(errAborted, body)
	case result.Failure != nil:
		c.outcome = outcomeOf(registry.FailureUpstreamError)
		c.failedInBand(result.Failure.Message, body)
		answerHeader(c.writer.Header(), c.response.Header)
		c.deliver(status, body)
		return nil
	}
	if err := c.commit(status, body, result); err != nil {
		return err
	}
	answerHeader(c.writer.Header(), c.response.Header)
	left := c.left()
	c.ended(c.deliver(status, c.dialect.Visible(body, c.added)) && !left)
	return nil
}

// invalidAnswer is a body that is not the JSON it should be: cut short when
// its end is where it stops making sense.
func invalidAnswer(err error, length int) error {
	kind := registry.FailureUpstreamError
	if syntax, ok := errors.AsType[*rawjson.SyntaxError](err); ok && syntax.Offset >= int64(length) {
		kind = registry.FailureUpstreamTruncated
	}
	return &upstreamError{kind, http.StatusBadGateway, codeUpstreamInvalid, "the upstream's answer is not a JSON object", err}
}
