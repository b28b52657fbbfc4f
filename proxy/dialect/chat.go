package dialect

import (
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// Chat is the chat completions format of the OpenAI API
// (POST /v1/chat/completions), with the fields that vLLM, SGLang and
// llama.cpp add to it.
type Chat struct{}

var _ Dialect = Chat{}

// Name implements Dialect.
func (Chat) Name() string { return "chat" }

// ErrorBody implements Dialect.
func (Chat) ErrorBody(e Error) []byte { return openAIBody(e) }

// ErrorEvent implements Dialect. The SDKs raise an event whose data has an
// `error` as an API error.
func (Chat) ErrorEvent(e Error) []byte {
	b := append([]byte("data: "), openAIBody(e)...)
	return append(b, "\n\n"...)
}

// Parse implements Dialect.
func (Chat) Parse(body []byte, sent Sent) (*Request, error) {
	r, err := parseMessages(body, sent, "model", "messages", "stream", "stream_options", "n")
	if err != nil {
		return nil, err
	}
	r.choices = chatChoices(r.Object)
	return r, nil
}

// chatChoices is how many choices a request asks for.
func chatChoices(object rawjson.Object) int {
	raw, _ := object.Get("n")
	n, _ := rawjson.Int(raw)
	return int(min(max(n, 1), maxChoices))
}

// maxChoices is more than anybody can mean.
const maxChoices = 1 << 16

// Override implements Dialect.
func (Chat) Override(r *Request, o Overrides) (Added, error) {
	var edits []rawjson.Edit
	if o.Model != "" {
		edits = append(edits, rawjson.Edit{Key: "model", Value: rawjson.Quote(nil, o.Model)})
	}
	for _, key := range o.fields() {
		if key == "max_tokens" || key == "max_completion_tokens" {
			if err := unambiguous(r.Object, "max_tokens", "max_completion_tokens"); err != nil {
				return Added{}, err
			}
			edits = append(edits, chatMaxTokens(r.Object, key, o)...)
			continue
		}
		if err := unambiguous(r.Object, key); err != nil {
			return Added{}, err
		}
		if o.Yield && given(r.Object, key) {
			continue
		}
		edits = append(edits, rawjson.Edit{Key: key, Value: o.Sampling[key]})
	}
	usage, added := chatUsage(edited(r.Object, edits, "stream_options"), r.Stream, o.Usage)
	tokens := capturing{object: r.Object, edits: append(edits, usage...)}
	if tokens.chat(o.Capture, r.Stream, &added); tokens.err != nil {
		return Added{}, tokens.err
	}
	r.edit(tokens.edits, added)
	r.choices = chatChoices(r.Object)
	return added, nil
}

// chatMaxTokens writes the limit on generated tokens under the name that the
// harness used for it, of the two that the format has, so that a request never
// carries both: OpenAI's reasoning models refuse max_tokens, older servers do
// not know max_completion_tokens.
func chatMaxTokens(object rawjson.Object, key string, o Overrides) []rawjson.Edit {
	const older, newer = "max_tokens", "max_completion_tokens"
	if key == older {
		if _, both := o.Sampling[newer]; both {
			return nil
		}
	}
	_, hasOlder := object.Get(older)
	_, hasNewer := object.Get(newer)
	value := o.Sampling[key]
	switch {
	case o.Yield && (given(object, older) || given(object, newer)):
		return nil
	case hasOlder && hasNewer:
		return []rawjson.Edit{{Key: newer, Value: value}, {Key: older}}
	case hasOlder:
		return []rawjson.Edit{{Key: older, Value: value}}
	case hasNewer:
		return []rawjson.Edit{{Key: newer, Value: value}}
	default:
		return []rawjson.Edit{{Key: key, Value: value}}
	}
}

// chatUsage asks a stream with these stream_options to end with a usage chunk,
// as include_usage in them does in the OpenAI API.
func chatUsage(options []byte, stream bool, wish UsageWish) ([]rawjson.Edit, Added) {
	if !stream || wish == UsageAsIs {
		return nil, Added{}
	}
	edit := rawjson.Edit{Key: "stream_options"}
	switch rawjson.Kind(options) {
	case '{':
		asked := rawjson.Lookup(options, "include_usage")
		if yes, _ := rawjson.Bool(asked); yes {
			return nil, Added{}
		}
		if declined := rawjson.Kind(asked) == 'f'; declined && wish != UsageRequired {
			return nil, Added{}
		}
		object, err := rawjson.ParseObject(options, nil)
		if err != nil || object.Count("include_usage") > 1 {
			return nil, Added{}
		}
		edit.Value = object.Apply([]rawjson.Edit{{Key: "include_usage", Value: []byte("true")}})
	case 0, 'n':
		edit.Value = []byte(`{"include_usage":true}`)
	default:
		return nil, Added{} // not an object: the upstream will say so
	}
	return []rawjson.Edit{edit}, Added{Usage: true}
}

// Conversation implements Dialect.
func (Chat) Conversation(r *Request) Conversation {
	f := newFingerprint()
	defer f.free()
	f.of(r.Object)
	return f.list(Chat{}, r, messagesField, func(at *rawjson.Cursor) (uint64, bool) { return f.chatMessage(at, nil), true })
}

// said is what a message says beside its fingerprint.
type said struct {
	content []byte // raw
	called  []string
}

// chatMessage fingerprints the message of a request or of a choice at a cursor, and
// tells what it says if it is asked to.
func (f *fingerprint) chatMessage(at *rawjson.Cursor, tell *said) uint64 {
	var role, callID, functionCall []byte
	content := noText
	f.reset()
	for key := range at.Fields {
		switch string(key) {
		case "role":
			role = at.Value()
		case "content":
			if tell != nil {
				value := *at
				tell.content = value.Value()
			}
			content = f.contentHash(at)
		case "tool_call_id":
			callID = at.Value()
		case "tool_calls":
			f.calls = 0
			for range at.Elements {
				tell.call(f.chatToolCall(at))
			}
		case "function_call":
			functionCall = at.Value()
		}
	}
	if role == nil {
		role = []byte(`"assistant"`)
	}
	f.quoted(role)
	f.number(content)
	if callID != nil {
		f.quoted(callID)
	}
	if rawjson.Kind(functionCall) == '{' {
		name := rawjson.Lookup(functionCall, "name")
		f.quotedCall(nil, name, rawjson.Lookup(functionCall, "arguments"))
		tell.call(name)
	}
	return f.sum()
}

// call notes the raw name of a tool call.
func (s *said) call(name []byte) {
	if s == nil {
		return
	}
	called, _ := rawjson.String(name)
	s.called = append(s.called, called)
}

// chatToolCall adds the tool call at a cursor, and returns its raw name.
func (f *fingerprint) chatToolCall(at *rawjson.Cursor) (name []byte) {
	var id, arguments []byte
	for key := range at.Fields {
		switch string(key) {
		case "id":
			id = at.Value()
		case "function":
			for key := range at.Fields {
				switch string(key) {
				case "name":
					name = at.Value()
				case "arguments":
					arguments = at.Value()
				}
			}
		}
	}
	f.quotedCall(id, name, arguments)
	return name
}

// chatUsageOf reads the usage object of the OpenAI API. Cached tokens are part
// of prompt_tokens there.
func chatUsageOf(raw []byte) *registry.Usage {
	if rawjson.Kind(raw) != '{' {
		return nil
	}
	var u registry.Usage
	at := rawjson.Walk(raw)
	for key := range at.Fields {
		switch string(key) {
		case "prompt_tokens":
			u.InputTokens, _ = rawjson.Int(at.Value())
		case "completion_tokens":
			u.OutputTokens, _ = rawjson.Int(at.Value())
		case "prompt_tokens_details":
			u.CachedTokens, _ = rawjson.Int(rawjson.Lookup(at.Value(), "cached_tokens"))
		case "completion_tokens_details":
			u.ReasoningTokens, _ = rawjson.Int(rawjson.Lookup(at.Value(), "reasoning_tokens"))
		}
	}
	return &u
}

// chatFailure finds the error that some servers send inside a 200: OpenAI's
// {"error":...} and the {"object":"error",...} of older vLLM and SGLang.
func chatFailure(object rawjson.Object) *Failure {
	if raw, ok := object.Get("error"); ok && rawjson.Kind(raw) != 'n' {
		if message, ok := rawjson.String(rawjson.Lookup(raw, "message")); ok {
			return &Failure{Message: message}
		}
		if message, ok := rawjson.String(raw); ok {
			return &Failure{Message: message}
		}
		return &Failure{Message: string(raw)}
	}
	if raw, ok := object.Get("object"); ok && string(raw) == `"error"` {
		raw, _ = object.Get("message")
		message, _ := rawjson.String(raw)
		return &Failure{Message: message}
	}
	return nil
}
