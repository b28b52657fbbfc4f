package dialect

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// Responses is the Responses format of the OpenAI API (POST /v1/responses).
//
// A request of this format can rest on what the provider stores instead of
// sending it: an earlier response, an item of one, a conversation. Since all
// sessions use one credential there, such a request is only served if it can
// be known that the session has received what it refers to.
type Responses struct{}

var _ Dialect = Responses{}

// Name implements Dialect.
func (Responses) Name() string { return "responses" }

// ErrorBody implements Dialect.
func (Responses) ErrorBody(e Error) []byte { return openAIBody(e) }

// ErrorEvent implements Dialect. The error stands in it twice: as the event has
// it in this format, and as the SDKs look for it in streams of any format.
func (Responses) ErrorEvent(e Error) []byte {
	b := append([]byte(nil), "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":"...)
	b = rawjson.Quote(b, e.Code)
	b = append(b, `,"message":`...)
	b = rawjson.Quote(b, e.Message)
	b = append(b, `,"param":null,`...)
	b = append(b, openAIBody(e)[1:]...)
	return append(b, "\n\n"...)
}

// inputField is where this format has the conversation.
const inputField = "input"

// Parse implements Dialect.
func (Responses) Parse(body []byte, sent Sent) (*Request, error) {
	r, err := parseRequest(body, sent, inputField, "model", inputField, "stream", "previous_response_id", "conversation", "background")
	if err != nil {
		return nil, err
	}
	input, _ := r.Object.Get(inputField)
	switch rawjson.Kind(input) {
	case '"', '[':
	case 0, 'n': // the prompt may be one that the provider keeps
	default:
		return nil, &RequestError{Param: "input", Message: "input must be a text or an array of items"}
	}
	if err := alone(r.Object); err != nil {
		return nil, err
	}
	r.References, err = responsesReferences(r.Object)
	return r, err
}

// alone refuses what would outlive the call, or be shared with other sessions.
func alone(object rawjson.Object) error {
	background, err := optionalBool(object, "background")
	if err != nil {
		return err
	}
	if background {
		return &RequestError{Param: "background", Message: "background responses are not supported: a turn is recorded as it is answered"}
	}
	if given(object, "conversation") {
		return &RequestError{Param: "conversation", Message: "conversations are not supported: they are not bound to this session"}
	}
	return nil
}

// responsesReferences finds the ids by which a request rests on what is stored.
func responsesReferences(object rawjson.Object) ([]Reference, error) {
	var references []Reference
	previous, err := optionalString(object, "previous_response_id")
	if err != nil {
		return nil, err
	}
	if previous != "" {
		references = append(references, Reference{Param: "previous_response_id", ID: previous, Continues: true})
	}
	input, _ := object.Get("input")
	i := 0
	for item := range rawjson.Elements(input) {
		if id, param, continues := referenceOf(item); id != "" {
			references = append(references, Reference{Param: fmt.Sprintf("input[%d].%s", i, param), ID: id, Continues: continues && previous == ""})
		}
		i++
	}
	return references, nil
}

// referenceOf is the id by which an item of the input stands for something that
// is not in the request, "" if it has its contents with it.
func referenceOf(item []byte) (id, param string, continues bool) {
	kind := itemType(item)
	switch kind {
	case "message", "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call",
		"function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
		"apply_patch_call_output", "computer_call_output":
		return "", "", false
	case "mcp_approval_response":
		id, _ = rawjson.String(rawjson.Lookup(item, "approval_request_id"))
		return id, "approval_request_id", false
	case "reasoning", "compaction":
		if filled(rawjson.Lookup(item, "encrypted_content")) || filled(rawjson.Lookup(item, "content")) {
			return "", "", false
		}
	}
	id, _ = rawjson.String(rawjson.Lookup(item, "id"))
	return id, "id", kind == itemReference
}

// itemReference is the type of an item that is nothing but another one's id.
const itemReference = "item_reference"

// itemType is an item's type. Messages and references may leave it out.
func itemType(item []byte) string {
	return typeOf(rawjson.Lookup(item, "type"), rawjson.Lookup(item, "role"))
}

func typeOf(kind, role []byte) string {
	switch word := word(kind); {
	case word != "":
		return word
	case role != nil:
		return "message"
	}
	return itemReference
}

// filled says that a value is there and is neither null nor empty.
func filled(raw []byte) bool {
	switch rawjson.Kind(raw) {
	case 0, 'n':
		return false
	case '"':
		return string(raw) != `""`
	case '[':
		return !empty(rawjson.Elements(raw))
	default:
		return true
	}
}

// Override implements Dialect. Streams of this format always report their usage.
func (Responses) Override(r *Request, o Overrides) (Added, error) {
	edits, err := o.edits(r.Object, func(key string) string {
		if key == "max_tokens" || key == "max_completion_tokens" {
			return "max_output_tokens"
		}
		return key
	})
	if err != nil {
		return Added{}, err
	}
	r.edit(edits, Added{})
	return Added{}, nil
}

// Conversation implements Dialect. The instructions are left out, as the system
// text of messages is.
func (Responses) Conversation(r *Request) Conversation {
	f := newFingerprint()
	defer f.free()
	f.of(r.Object)
	if previous, _ := r.Object.Get("previous_response_id"); rawjson.Kind(previous) == '"' {
		f.quoted(previous)
		f.add(f.sum())
	}
	input, _ := r.Object.Get(inputField)
	if rawjson.Kind(input) == '"' {
		f.reset()
		f.bytes([]byte("user"))
		f.content(input)
		f.add(f.sum())
	}
	return f.list(Responses{}, r, inputField, func(at *rawjson.Cursor) (uint64, bool) {
		counts := f.responsesItem(at.Value())
		return f.sum(), counts
	})
}

// A rawItem is what is read of an item, as it stands there.
type rawItem struct {
	kind, role, content, id, callID, name, arguments, input, output []byte
}

func rawItemOf(item []byte) (raw rawItem) {
	at := rawjson.Walk(item)
	for key := range at.Fields {
		switch string(key) {
		case "type":
			raw.kind = at.Value()
		case "role":
			raw.role = at.Value()
		case "content":
			raw.content = at.Value()
		case "id":
			raw.id = at.Value()
		case "call_id":
			raw.callID = at.Value()
		case "name":
			raw.name = at.Value()
		case "arguments":
			raw.arguments = at.Value()
		case "input":
			raw.input = at.Value()
		case "output":
			raw.output = at.Value()
		}
	}
	return raw
}

// responsesItem fingerprints an item of a request or of a response. False is an
// item that harnesses may leave out.
func (f *fingerprint) responsesItem(item []byte) bool {
	f.reset()
	raw := rawItemOf(item)
	switch kind := typeOf(raw.kind, raw.role); kind {
	case "reasoning":
		return false
	case "message":
		f.quoted(raw.role)
		f.content(raw.content)
	case "function_call":
		f.quotedCall(raw.callID, raw.name, raw.arguments)
	case "custom_tool_call":
		f.quotedCall(raw.callID, raw.name, raw.input)
	case "function_call_output", "custom_tool_call_output":
		f.bytes([]byte(kind))
		f.quoted(raw.callID)
		f.content(raw.output)
	case itemReference:
		f.bytes([]byte(kind))
		f.quoted(raw.id)
	default:
		f.bytes([]byte(kind))
		f.number(itemHash(item))
	}
	return true
}
