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
		message := at.Value()
		return f.messagesMessage(rawjson.Lookup(message, "role"), rawjson.Lookup(message, "content")), true
	})
}

func (f *fingerprint) messagesMessage(role, content []byte) uint64 {
	f.reset()
	f.quoted(role)
	if rawjson.Kind(content) == '"' {
		f.quoted(content)
		return f.sum()
	}
	f.joined = f.joined[:0]
	for block := range rawjson.Elements(content) {
		if kind, _ := rawjson.String(rawjson.Lookup(block, "type")); kind == "text" {
			f.joined = append(f.joined, f.spelled(rawjson.Lookup(block, "text"))...)
		}
	}
	f.number(xxh3.Hash(f.joined))
	for block := range rawjson.Elements(content) {
		f.messagesBlock(block, nil)
	}
	return f.sum()
}

// messagesBlock adds a block that is neither text, which is added in one
// piece, nor reasoning, which harnesses may leave out. An input takes the place
// of the block's own.
func (f *fingerprint) messagesBlock(block, input []byte) {
	switch kind, _ := rawjson.String(rawjson.Lookup(block, "type")); kind {
	case "text", "thinking", "redacted_thinking":
	case "tool_use", "server_tool_use", "mcp_tool_use":
		if len(input) == 0 {
			input = rawjson.Lookup(block, "input")
		}
		f.number(callSum(
			xxh3.Hash(f.spelled(rawjson.Lookup(block, "id"))), xxh3.Hash(f.spelled(rawjson.Lookup(block, "name"))), valueHash(input),
		))
	case "tool_result":
		f.bytes([]byte(kind))
		f.quoted(rawjson.Lookup(block, "tool_use_id"))
		f.content(rawjson.Lookup(block, "content"))
	default:
		f.number(partHash(block))
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
	choice := registry.Choice{Continuation: c.Continued(f.messagesMessage([]byte(`"assistant"`), content))}
	choice.FinishReason, _ = rawjson.String(raw)
	var text []byte
	for block := range rawjson.Elements(content) {
		switch kind, _ := rawjson.String(rawjson.Lookup(block, "type")); kind {
		case "text":
			text = rawjson.AppendString(text, rawjson.Lookup(block, "text"))
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
