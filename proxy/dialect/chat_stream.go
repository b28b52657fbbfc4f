package dialect

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/sse"
	"github.com/muxproxy/muxproxy/registry"
)

// chatStream follows the chunks of a streamed chat completion. Those of text
// completions differ only in what a choice holds.
//
// Events of one stream are seldom in the time of a processor: what each of them
// needs stands first, so that it is fetched together.
type chatStream struct {
	added    Added
	done     bool // [DONE] was seen
	aborted  bool
	failure  *Failure
	unread   [][]byte // chunks that only go on with what was begun
	expected int      // choices the harness asked for
	ended    int      // choices with a finish reason

	choices      []chatStreamChoice // in order of first appearance
	idle         int                // choices of the last chunk that say nothing
	conversation Conversation
	model        string
	usage        *registry.Usage
	prompt       []byte // its token ids, a JSON array

	edited []byte // scratch: the replacement of an event
}

// chatStreamChoice is the message, or the completion, of one choice so far.
type chatStreamChoice struct {
	index     int
	finish    string
	text      []byte
	tokenIDs  []byte // a JSON array
	toolCalls []chatStreamToolCall
}

// chatStreamToolCall is merged from the deltas of one index.
type chatStreamToolCall struct {
	index               int64
	id, name, arguments []byte
}

// Stream implements Dialect.
func (Chat) Stream(r *Request, added Added, c Conversation) Stream {
	return &chatStream{added: added, conversation: c, expected: r.choices}
}

// Event implements Stream.
func (s *chatStream) Event(event []byte) (Action, []byte) {
	data := sse.Data(event)
	if s.done {
		return Hold, nil
	}
	if data == nil {
		return Forward, nil
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		s.done = true
		return Hold, nil
	}
	if !s.added.tokens() && goesOn(data) {
		if s.unread = append(s.unread, data); len(s.unread) == maxUnread {
			s.read()
		}
		return Forward, nil
	}
	s.read()
	return s.chunk(event, data)
}

// maxUnread is how many chunks are read together. One by one, as they trickle
// in, each would find code and data gone from the processor's caches.
const maxUnread = 64

// goesOn says that a chunk, as most servers write most of them, neither ends
// anything nor reports anything, so that it may be read later.
func goesOn(data []byte) bool {
	return bytes.Contains(data, []byte(`"finish_reason":null`)) &&
		!bytes.Contains(data, []byte(`"usage"`)) && !bytes.Contains(data, []byte(`"error"`))
}

// read catches up with the chunks that were put off.
func (s *chatStream) read() {
	for _, data := range s.unread {
		s.chunk(nil, data)
	}
	clear(s.unread)
	s.unread = s.unread[:0]
}

// chunk reads one chunk. It does not validate it: what is no JSON says nothing
// here and goes on as it came.
func (s *chatStream) chunk(event, data []byte) (Action, []byte) {
	var usage []byte
	choices := 0
	s.idle = 0
	at := rawjson.Walk(data)
	for key := range at.Fields {
		switch string(key) {
		case "model":
			if s.model == "" {
				s.model, _ = rawjson.String(at.Value())
			}
		case "usage":
			usage = at.Value()
		case "prompt_token_ids":
			s.promptIDs(at.Value())
		case "choices":
			for range at.Elements {
				s.choice(&at)
				choices++
			}
		case "error":
			s.fail(data, rawjson.Kind(at.Value()) != 'n')
		case "object":
			s.fail(data, string(at.Value()) == `"error"`)
		}
	}
	if s.aborted {
		return Abort, nil
	}
	if u := chatUsageOf(usage); u != nil {
		s.usage = u
	}
	if s.added == (Added{}) || s.failure != nil {
		return Forward, nil
	}
	return s.visible(event, data, usage, choices)
}

func (s *chatStream) fail(data []byte, failed bool) {
	if !failed || s.failure != nil {
		return
	}
	if object, err := rawjson.ParseObject(data, nil); err == nil {
		s.failure = chatFailure(object)
	}
}

// visible frees a chunk of what only muxproxy asked for: of captured tokens, and
// of usage. The last chunk, which has no choices, goes whole, as do those that
// vLLM sends for token ids alone; from others the member that the asking caused.
func (s *chatStream) visible(event, data, usage []byte, choices int) (Action, []byte) {
	var edits []rawjson.Edit
	if s.added.Usage && usage != nil {
		switch {
		case rawjson.Kind(usage) == 'n':
			edits = append(edits, rawjson.Edit{Key: "usage"})
		case choices == 0 && rawjson.Kind(usage) == '{':
			return Drop, nil
			// A server that reports usage beside a choice does so on its own account.
		}
	}
	if s.added.TokenIDs && choices > 0 && s.idle == choices {
		return Drop, nil
	}
	if len(edits) == 0 && !s.added.tokens() {
		return Forward, nil
	}
	visible := s.added.visible(data, edits...)
	if bytes.Equal(visible, data) {
		return Forward, nil
	}
	s.edited = sse.ReplaceData(s.edited[:0], event, visible)
	return Replace, s.edited
}

func (s *chatStream) choice(at *rawjson.Cursor) {
	var index int64
	var delta, text, tokenIDs, finish []byte
	for key := range at.Fields {
		switch string(key) {
		case "index":
			index, _ = rawjson.Int(at.Value())
		case "delta":
			delta = at.Value()
		case "text":
			text = at.Value()
		case "token_ids":
			tokenIDs = at.Value()
		case "prompt_token_ids":
			s.promptIDs(at.Value())
		case "finish_reason":
			finish = at.Value()
		}
	}
	c := s.at(int(index))
	if rawjson.Kind(delta) == '{' && noFields(delta) && rawjson.Kind(finish) == 'n' {
		s.idle++
	}
	if rawjson.Kind(text) == '"' {
		c.text = rawjson.AppendString(c.text, text)
	}
	if s.conversation.text != nil && s.conversation.text.ids && rawjson.Kind(tokenIDs) == '[' {
		c.tokenIDs = joinArrays(c.tokenIDs, tokenIDs)
	}
	if reason, ok := rawjson.String(finish); ok && reason != "" {
		if c.finish == "" {
			s.ended++
		}
		c.finish = reason
		s.aborted = s.aborted || reason == finishAborted
	}
	for key, value := range rawjson.Fields(delta) {
		switch string(key) {
		case "content":
			if rawjson.Kind(value) == '"' {
				c.text = rawjson.AppendString(c.text, value)
			}
		case "tool_calls":
			for call := range rawjson.Elements(value) {
				c.toolCall(call)
			}
		case "function_call":
			c.function(-1, value)
		}
	}
}

func (s *chatStream) promptIDs(raw []byte) {
	if s.prompt == nil && rawjson.Kind(raw) == '[' {
		s.prompt = raw
	}
}

// at gives the choice of that index, which is nearly always the first.
func (s *chatStream) at(index int) *chatStreamChoice {
	for i := range s.choices {
		if s.choices[i].index == index {
			return &s.choices[i]
		}
	}
	s.choices = append(s.choices, chatStreamChoice{index: index})
	return &s.choices[len(s.choices)-1]
}

func (c *chatStreamChoice) toolCall(raw []byte) {
	index, _ := rawjson.Int(rawjson.Lookup(raw, "index"))
	call := c.function(index, rawjson.Lookup(raw, "function"))
	if id := rawjson.Lookup(raw, "id"); len(call.id) == 0 && rawjson.Kind(id) == '"' {
		call.id = rawjson.AppendString(nil, id)
	}
}

func (c *chatStreamChoice) function(index int64, raw []byte) *chatStreamToolCall {
	call := c.callAt(index)
	for key, value := range rawjson.Fields(raw) {
		switch string(key) {
		case "name":
			if len(call.name) == 0 && rawjson.Kind(value) == '"' {
				call.name = rawjson.AppendString(nil, value)
			}
		case "arguments":
			if rawjson.Kind(value) == '"' {
				call.arguments = rawjson.AppendString(call.arguments, value)
			}
		}
	}
	return call
}

func (c *chatStreamChoice) callAt(index int64) *chatStreamToolCall {
	for i := range c.toolCalls {
		if c.toolCalls[i].index == index {
			return &c.toolCalls[i]
		}
	}
	c.toolCalls = append(c.toolCalls, chatStreamToolCall{index: index})
	return &c.toolCalls[len(c.toolCalls)-1]
}

// Terminal implements Stream.
func (s *chatStream) Terminal() bool { return s.done }

// Failure implements Stream.
func (s *chatStream) Failure() *Failure { return s.failure }

// Complete implements Stream. Some servers send no [DONE], others no
// finish_reason; either one alone will do, but not neither.
func (s *chatStream) Complete() bool {
	if s.failure != nil || s.aborted {
		return false
	}
	if s.done || !s.finished() {
		return s.done
	}
	s.read() // which may show a choice that goes on
	return s.finished()
}

func (s *chatStream) finished() bool {
	return s.ended >= s.expected && s.ended == len(s.choices)
}

// Result implements Stream.
func (s *chatStream) Result() Result {
	s.read()
	result := Result{Model: s.model, Usage: s.usage, PromptTokenIDs: s.prompt, Failure: s.failure, Aborted: s.aborted}
	f := newFingerprint()
	defer f.free()
	for i := range s.choices {
		result.Choices = append(result.Choices, s.choices[i].result(f, s.conversation))
	}
	return result
}

func (c *chatStreamChoice) result(f *fingerprint, conversation Conversation) registry.Choice {
	choice := registry.Choice{Index: c.index, FinishReason: c.finish, Text: func() string { return string(c.text) }}
	f.reset()
	f.bytes([]byte("assistant"))
	f.bytes(c.text)
	// In the order of the JSON form, which need not be that of arrival.
	slices.SortStableFunc(c.toolCalls, func(a, b chatStreamToolCall) int { return cmp.Compare(a.index, b.index) })
	for _, call := range c.toolCalls {
		choice.ToolCalls = append(choice.ToolCalls, string(call.name))
		f.toolCall(call.id, call.name, call.arguments)
	}
	choice.Continuation = conversation.Continued(f.sum())
	return choice
}
