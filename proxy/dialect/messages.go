package dialect

import (
	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// Messages is the format of the Anthropic API (POST /v1/messages).
type Messages struct{}

var _ Dialect = Messages{}

// Name implements Dialect.
func (Messages) Name() string { return "messages" }

// ErrorBody implements Dialect. The code and the stop condition are additions
// to Anthropic's shape, which its SDKs show as part of the error's body.
func (Messages) ErrorBody(e Error) []byte {
	b := append([]byte(nil), `{"type":"error","error":{"type":`...)
	b = rawjson.Quote(b, anthropicType(e.Status))
	b = append(b, `,"message":`...)
	b = rawjson.Quote(b, e.Message)
	return appendCode(b, e)
}

// ErrorEvent implements Dialect.
func (d Messages) ErrorEvent(e Error) []byte {
	b := append([]byte("event: error\ndata: "), d.ErrorBody(e)...)
	return append(b, "\n\n"...)
}

// anthropicType is the error type of a status in the Anthropic API.
func anthropicType(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503:
		return "overloaded_error"
	case 504:
		return "timeout_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// Parse implements Dialect.
func (Messages) Parse(body []byte, sent Sent) (*Request, error) {
	return parseMessages(body, sent, "model", "messages", "stream")
}

// Override implements Dialect. Streams of this format always report their
// usage, so nothing is asked for.
func (Messages) Override(r *Request, o Overrides) (Added, error) {
	edits, err := o.edits(r.Object, onlyMaxTokens)
	if err != nil {
		return Added{}, err
	}
	r.edit(edits, Added{})
	return Added{}, nil
}

// Conversation implements Dialect. The system text is no message here and is
// left out: some harnesses write a changing header into it.
func (Messages) Conversation(r *Request) Conversation {
	f := newFingerprint()
	defer f.free()
	f.of(r.Object)
	return f.list(Messages{}, r, messagesField, func(at *rawjson.Cursor) (uint64, bool) {
		return f.messagesMessage(at), true
	})
}

// messagesMessage fingerprints the message at a cursor.
func (f *fingerprint) messagesMessage(at *rawjson.Cursor) uint64 {
	var role []byte
	text := noText
	f.reset()
	for key := range at.Fields {
		switch string(key) {
		case "role":
			role = at.Value()
		case "content":
			f.calls = 0
			text = f.messagesContent(at)
		}
	}
	f.quoted(role)
	f.number(text)
	return f.sum()
}

// messagesContent adds the blocks of the content at a cursor, and returns the hash
// of its text, which is added in one piece.
func (f *fingerprint) messagesContent(at *rawjson.Cursor) uint64 {
	if at.Kind() == '"' {
		return f.string(at.Value())
	}
	var text []byte
	parts := 0
	for range at.Elements {
		block := at.Value()
		kind, written := blockOf(block)
		if kind == "text" {
			text = f.join(text, parts, written)
			parts++
			continue
		}
		f.messagesBlock(block, nil)
	}
	return xxh3.Hash(text)
}

// blockOf is the type of a block, and its text.
func blockOf(block []byte) (kind string, text []byte) {
	at := rawjson.Walk(block)
	for key := range at.Fields {
		switch string(key) {
		case "type":
			kind = word(at.Value())
		case "text":
			text = at.Value()
		}
	}
	return kind, text
}

// messagesBlock adds a block that is neither text, which is added in one
// piece, nor reasoning, which harnesses may leave out. An input takes the place
// of the block's own.
func (f *fingerprint) messagesBlock(block, input []byte) {
	switch kind := word(rawjson.Lookup(block, "type")); kind {
	case "text", "thinking", "redacted_thinking":
	case "tool_use", "server_tool_use", "mcp_tool_use":
		if len(input) == 0 {
			input = rawjson.Lookup(block, "input")
		}
		f.block(callSum(f.string(rawjson.Lookup(block, "id")), f.string(rawjson.Lookup(block, "name")), valueHash(input)))
	case "tool_result":
		content := rawjson.Walk(rawjson.Lookup(block, "content"))
		f.block(callSum(f.text([]byte(kind)), f.string(rawjson.Lookup(block, "tool_use_id")), f.contentHash(&content)))
	default:
		f.block(partHash(block))
	}
}

// Response implements Dialect.
func (Messages) Response(body []byte, c Conversation) (Result, error) {
	f := newFingerprint()
	defer f.free()
	object, err := f.parse(body)
	if err != nil {
		return Result{}, err
	}
	var result Result
	content, ok := object.Get("content")
	if result.Failure = messagesFailure(object); result.Failure == nil && !ok {
		result.Failure = &Failure{Message: "the answer has no content"}
	}
	if result.Failure != nil {
		return result, nil
	}
	raw, _ := object.Get("model")
	result.Model, _ = rawjson.String(raw)
	var usage messagesUsage
	raw, _ = object.Get("usage")
	usage.update(raw)
	result.Usage = usage.total()
	raw, _ = object.Get("stop_reason")
	at := rawjson.Walk(content)
	said := f.messagesContent(&at)
	f.bytes([]byte("assistant"))
	f.number(said)
	choice := registry.Choice{Continuation: c.Continued(f.sum())}
	choice.FinishReason = word(raw)
	var text []byte
	for block := range rawjson.Elements(content) {
		switch kind, written := blockOf(block); kind {
		case "text":
			text = rawjson.AppendString(text, written)
		case "tool_use":
			name, _ := rawjson.String(rawjson.Lookup(block, "name"))
			choice.ToolCalls = append(choice.ToolCalls, name)
		}
	}
	choice.Text = func() string { return string(text) }
	result.Aborted = choice.FinishReason == finishAborted
	result.Choices = []registry.Choice{choice}
	return result, nil
}

// messagesFailure finds an error in the place of an answer or event. Servers
// that are not Anthropic's may leave its type out.
func messagesFailure(object rawjson.Object) *Failure {
	kind, typed := object.Get("type")
	raw, ok := object.Get("error")
	if !ok || rawjson.Kind(raw) == 'n' || typed && string(kind) != `"error"` {
		return nil
	}
	if message, ok := rawjson.String(rawjson.Lookup(raw, "message")); ok {
		return &Failure{Message: message}
	}
	return &Failure{Message: string(raw)}
}

// Visible implements Dialect. Nothing is added to requests of this format.
func (Messages) Visible(answer []byte, _ Added) []byte { return answer }

// Inspect implements Dialect.
func (Messages) Inspect(response []byte) Details {
	if rawjson.Lookup(response, "content") == nil {
		return Details{}
	}
	reason, _ := rawjson.String(rawjson.Lookup(response, "stop_reason"))
	return Details{Choices: []ChoiceDetails{{FinishReason: reason}}}
}
