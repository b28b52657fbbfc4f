package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// turn is one recorded model call. Request and Response come last on the wire
// and are not encoded with the rest: they are the bytes that were sent and
// received, spliced in as they are.
type turn struct {
	Index             int    `json:"index"`
	Parent            *int   `json:"parent" doc:"The turn whose conversation this one continues; null if none."`
	Dialect           string `json:"dialect" example:"chat"`
	Model             string `json:"model"`
	RequestID         string `json:"request_id"`
	UpstreamRequestID string `json:"upstream_request_id"`

	Choices          []choice        `json:"choices" nullable:"false"`
	PromptTokenIDs   json.RawMessage `json:"prompt_token_ids" doc:"Token ids of the prompt, where upstream gave them."`
	ExtendsParent    bool            `json:"extends_parent" doc:"prompt_token_ids begin with the parent's and one of its completions'."`
	TokenIDsComplete bool            `json:"token_ids_complete" doc:"The prompt and every choice have their token ids, as many as the usage says."`

	Usage         *usage      `json:"usage" doc:"null if upstream reported none."`
	WeightVersion versionSpan `json:"weight_version"`

	StartedAt               time.Time `json:"started_at"`
	TimeToFirstEventSeconds float64   `json:"time_to_first_event_seconds"`
	DurationSeconds         float64   `json:"duration_seconds"`

	Attempt   int    `json:"attempt"`
	Upstream  string `json:"upstream"`
	Replica   string `json:"replica"`
	Stream    bool   `json:"stream" doc:"The response came as a stream of events; response is what they amount to."`
	Delivered *bool  `json:"delivered" doc:"Whether the harness was sent the last byte; null while that is not known."`

	Request  json.RawMessage `json:"request,omitempty" required:"true" doc:"The request's body as it was sent upstream, byte for byte."`
	Response json.RawMessage `json:"response,omitempty" required:"true" doc:"The response's body: byte for byte, or a stream assembled."`
}

type choice struct {
	Index              int             `json:"index"`
	FinishReason       *string         `json:"finish_reason"`
	CompletionTokenIDs json.RawMessage `json:"completion_token_ids" doc:"Token ids of the completion, where upstream gave them."`
	CompletionLogprobs json.RawMessage `json:"completion_logprobs" doc:"Log-probabilities of the completion, where upstream gave them."`
}

type usage struct {
	InputTokens     int64 `json:"input_tokens" doc:"Cached ones included."`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// versionSpan holds the weight versions a turn began and ended under.
type versionSpan struct {
	Start registry.Version `json:"start"`
	End   registry.Version `json:"end"`
}

// failedCall is a call that made no turn. Request and Received are spliced in
// like those of turn.
type failedCall struct {
	Dialect           string    `json:"dialect"`
	Model             string    `json:"model"`
	RequestID         string    `json:"request_id"`
	UpstreamRequestID string    `json:"upstream_request_id"`
	Attempt           int       `json:"attempt"`
	Upstream          string    `json:"upstream"`
	Replica           string    `json:"replica"`
	Error             callError `json:"error"`

	StartedAt               *time.Time `json:"started_at"`
	TimeToFirstEventSeconds float64    `json:"time_to_first_event_seconds"`
	DurationSeconds         float64    `json:"duration_seconds"`

	Request        json.RawMessage `json:"request,omitempty" required:"true" doc:"The request's body as it was sent upstream; null if the call failed before."`
	Received       json.RawMessage `json:"received,omitempty" required:"true" doc:"What came back: JSON as it is, anything else as a string; null if nothing did."`
	ReceivedBase64 string          `json:"received_base64,omitempty" doc:"Instead of received, what is not text."`
}

// appendTurn appends the turn as JSON. other returns another turn of the session, and is called only if that is needed.
func appendTurn(dst []byte, t *registry.Turn, other func(index int) (*registry.Turn, error)) ([]byte, error) {
	response, details := reading(t)
	view := turn{
		Index: t.Index, Parent: t.Parent, Dialect: t.Dialect, Model: t.Model,
		RequestID: t.RequestID, UpstreamRequestID: t.UpstreamRequestID,
		Choices: choices(t, details), PromptTokenIDs: details.PromptTokenIDs, TokenIDsComplete: complete(details, t.Usage),
		WeightVersion: versionSpan(t.WeightVersion), StartedAt: t.StartedAt,
		TimeToFirstEventSeconds: t.TimeToFirstEvent.Seconds(), DurationSeconds: t.Duration.Seconds(),
		Attempt: t.Attempt, Upstream: t.Upstream, Replica: t.Replica, Stream: t.Stream, Delivered: t.Delivered(),
	}
	if t.Usage != nil {
		view.Usage = new(usage(*t.Usage))
	}
	if t.Parent != nil && details.PromptTokenIDs != nil {
		parent, err := other(*t.Parent)
		if err != nil {
			return dst, err
		}
		_, before := reading(parent)
		view.ExtendsParent = extends(details.PromptTokenIDs, before)
	}
	return appendWithBodies(dst, view, t.Request(), "response", response)
}

// reading is what a turn's response amounts to, and what can be read from it.
func reading(t *registry.Turn) (response []byte, details dialect.Details) {
	d, known := dialect.ByName(t.Dialect)
	response = t.Response()
	if known && t.Stream {
		assembled, err := d.Assemble(response)
		if err != nil {
			return nil, details
		}
		response = assembled
	}
	if known {
		details = d.Inspect(response)
	}
	return response, details
}

func choices(t *registry.Turn, details dialect.Details) []choice {
	out := make([]choice, 0, len(t.Choices))
	for _, c := range t.Choices {
		view := choice{Index: c.Index, FinishReason: orNull(c.FinishReason)}
		for _, d := range details.Choices {
			if d.Index == c.Index {
				view.CompletionTokenIDs, view.CompletionLogprobs = d.CompletionTokenIDs, d.CompletionLogprobs
			}
		}
		out = append(out, view)
	}
	return out
}

// complete reports whether all token ids are there. Engines give none with some
// chunks of tool calls, and then fewer than were generated.
func complete(d dialect.Details, u *registry.Usage) bool {
	var completions int64
	for _, c := range d.Choices {
		if c.CompletionTokenIDs == nil {
			return false
		}
		completions += count(c.CompletionTokenIDs)
	}
	if d.PromptTokenIDs == nil || len(d.Choices) == 0 {
		return false
	}
	return u == nil || completions == u.OutputTokens && count(d.PromptTokenIDs) == u.InputTokens
}

func count(array []byte) (n int64) {
	for range rawjson.Elements(array) {
		n++
	}
	return n
}

// extends reports whether prompt begins with the ids of an earlier turn's
// prompt and one of its completions.
func extends(prompt json.RawMessage, before dialect.Details) bool {
	if before.PromptTokenIDs == nil {
		return false
	}
	for _, c := range before.Choices {
		if c.CompletionTokenIDs != nil && beginsWith(prompt, before.PromptTokenIDs, c.CompletionTokenIDs) {
			return true
		}
	}
	return false
}

// beginsWith reports whether the elements of array are those of parts, in order,
// and perhaps more.
func beginsWith(array []byte, parts ...[]byte) bool {
	var want [][]byte
	for _, part := range parts {
		for id := range rawjson.Elements(part) {
			want = append(want, id)
		}
	}
	i := 0
	for id := range rawjson.Elements(array) {
		if i == len(want) {
			break
		}
		if !bytes.Equal(id, want[i]) {
			return false
		}
		i++
	}
	return i == len(want)
}

// appendFailedCall appends the call as JSON.
func appendFailedCall(dst []byte, f *registry.FailedCall) ([]byte, error) {
	view := failedCall{
		Dialect: f.Dialect, Model: f.Model, RequestID: f.RequestID, UpstreamRequestID: f.UpstreamRequestID,
		Attempt: f.Attempt, Upstream: f.Upstream, Replica: f.Replica, Error: callErrorOf(f.Error),
		StartedAt: orNull(f.StartedAt), TimeToFirstEventSeconds: f.TimeToFirstEvent.Seconds(), DurationSeconds: f.Duration.Seconds(),
	}
	received := f.Received
	if !utf8.Valid(received) {
		view.ReceivedBase64, received = base64.StdEncoding.EncodeToString(received), nil
	}
	return appendWithBodies(dst, view, f.Request(), "received", received)
}

// appendWithBodies appends a turn or failed call as JSON, with the bytes that were
// sent and those that came back, under this name, as its last members.
func appendWithBodies(dst []byte, view any, request []byte, name string, received []byte) ([]byte, error) {
	meta, err := encode(view)
	if err != nil {
		return dst, err
	}
	dst = append(dst, meta[:len(meta)-1]...)
	dst = append(dst, `,"request":`...)
	dst = appendRaw(dst, request)
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	dst = appendRaw(dst, received)
	return append(dst, '}'), nil
}

// appendRaw appends a JSON text as it is, anything else as a string, and
// nothing as null.
func appendRaw(dst, raw []byte) []byte {
	switch {
	case len(raw) == 0:
		return append(dst, "null"...)
	case rawjson.Valid(raw) == nil:
		return append(dst, raw...)
	default:
		return rawjson.Quote(dst, string(raw))
	}
}
