package dialect

import (
	"bytes"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/sse"
	"github.com/muxproxy/muxproxy/registry"
)

// messagesStream follows the events of a streamed message.
type messagesStream struct {
	conversation Conversation

	stopped bool // message_stop was seen
	failure *Failure
	model   string
	usage   messagesUsage
	finish  string
	text    []byte          // a JSON string, as is the input of a block
	blocks  []messagesBlock // all but text and reasoning

	members []rawjson.Member // scratch
}

// messagesBlock is a block as it was started, and its input as far as that has
// come in pieces.
type messagesBlock struct {
	index int64
	start []byte
	input []byte
}

// Stream implements Dialect.
func (Messages) Stream(_ *Request, _ Added, c Conversation) Stream {
	return &messagesStream{conversation: c}
}

// Event implements Stream. The type inside the data decides: not every server
// repeats it as the event's.
func (s *messagesStream) Event(event []byte) (Action, []byte) {
	if s.stopped {
		return Hold, nil
	}
	object, err := rawjson.ParseObject(sse.Data(event), s.members[:0])
	if err != nil {
		return Forward, nil
	}
	s.members = object.Members
	kind, _ := object.Get("type")
	switch string(kind) {
	case `"message_start"`:
		message, _ := object.Get("message")
		s.model, _ = rawjson.String(rawjson.Lookup(message, "model"))
		s.usage.update(rawjson.Lookup(message, "usage"))
	case `"content_block_start"`:
		s.blockStart(object)
	case `"content_block_delta"`:
		s.blockDelta(object)
	case `"message_delta"`:
		delta, _ := object.Get("delta")
		if reason, ok := rawjson.String(rawjson.Lookup(delta, "stop_reason")); ok {
			s.finish = reason
		}
		usage, _ := object.Get("usage")
		s.usage.update(usage)
		if s.finish == finishAborted {
			return Abort, nil
		}
	case `"message_stop"`:
		s.stopped = true
		return Hold, nil
	case `"error"`, "":
		if s.failure == nil {
			s.failure = messagesFailure(object)
		}
	}
	return Forward, nil
}

func (s *messagesStream) blockStart(object rawjson.Object) {
	block, _ := object.Get("content_block")
	switch kind, _ := rawjson.String(rawjson.Lookup(block, "type")); kind {
	case "text":
		if text := rawjson.Lookup(block, "text"); rawjson.Kind(text) == '"' {
			s.text = joinStrings(s.text, text)
		}
	case "thinking", "redacted_thinking":
	default:
		s.blocks = append(s.blocks, messagesBlock{index: blockIndex(object), start: bytes.Clone(block)})
	}
}

func (s *messagesStream) blockDelta(object rawjson.Object) {
	delta, _ := object.Get("delta")
	for key, value := range rawjson.Fields(delta) {
		if rawjson.Kind(value) != '"' {
			continue
		}
		switch string(key) {
		case "text":
			s.text = joinStrings(s.text, value)
		case "partial_json":
			index := blockIndex(object)
			for i := range s.blocks {
				if s.blocks[i].index == index {
					s.blocks[i].input = joinStrings(s.blocks[i].input, value)
				}
			}
		}
	}
}

func blockIndex(object rawjson.Object) int64 {
	raw, _ := object.Get("index")
	index, _ := rawjson.Int(raw)
	return index
}

// Terminal implements Stream.
func (s *messagesStream) Terminal() bool { return s.stopped }

// Failure implements Stream.
func (s *messagesStream) Failure() *Failure { return s.failure }

// Complete implements Stream.
func (s *messagesStream) Complete() bool { return s.stopped && s.failure == nil }

// Result implements Stream.
func (s *messagesStream) Result() Result {
	result := Result{Model: s.model, Usage: s.usage.total(), Failure: s.failure, Aborted: s.finish == finishAborted}
	text := rawjson.AppendString(nil, s.text)
	choice := registry.Choice{FinishReason: s.finish, Text: func() string { return string(text) }}
	f := newFingerprint()
	defer f.free()
	f.reset()
	f.bytes([]byte("assistant"))
	f.bytes(text)
	for _, block := range s.blocks {
		f.messagesBlock(block.start, rawjson.AppendString(nil, block.input))
		if kind, _ := rawjson.String(rawjson.Lookup(block.start, "type")); kind == "tool_use" {
			name, _ := rawjson.String(rawjson.Lookup(block.start, "name"))
			choice.ToolCalls = append(choice.ToolCalls, name)
		}
	}
	choice.Continuation = s.conversation.Continued(f.sum())
	result.Choices = []registry.Choice{choice}
	return result
}
