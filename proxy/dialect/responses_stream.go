package dialect

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/sse"
)

// responsesStream follows the events of a streamed response. The last one has
// the whole response, so the others are hardly looked at.
type responsesStream struct {
	conversation Conversation

	done     bool // response.completed or response.incomplete was seen
	aborted  bool
	failure  *Failure
	response []byte // of the terminal event
	items    []streamedItem
}

// streamedItem is an item of the output as it came by itself.
type streamedItem struct {
	index int64
	raw   []byte
}

// Stream implements Dialect.
func (Responses) Stream(_ *Request, _ Added, c Conversation) Stream {
	return &responsesStream{conversation: c}
}

// Event implements Stream. The type inside the data decides: not every server
// repeats it as the event's.
func (s *responsesStream) Event(event []byte) (Action, []byte) {
	if s.done {
		return Hold, nil
	}
	data := sse.Data(event)
	if data == nil {
		return Forward, nil
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		return Hold, nil // it must not look like the end unless that has come
	}
	switch kind := rawjson.Lookup(data, "type"); string(kind) {
	case `"response.output_item.done"`:
		s.items = append(s.items, itemOf(data))
	case `"response.completed"`, `"response.incomplete"`:
		return s.end(data), nil
	case `"response.cancelled"`:
		s.aborted = true
		return Abort, nil
	case `"response.failed"`, `"error"`, "":
		s.fail(data)
	}
	return Forward, nil
}

func itemOf(data []byte) streamedItem {
	index, _ := rawjson.Int(rawjson.Lookup(data, "output_index"))
	return streamedItem{index, rawjson.Lookup(data, "item")}
}

// end takes the terminal event, unless it makes no sense.
func (s *responsesStream) end(data []byte) Action {
	object, err := rawjson.ParseObject(data, nil)
	if err != nil {
		return Forward
	}
	s.response, _ = object.Get("response")
	if status, _ := rawjson.String(rawjson.Lookup(s.response, "status")); status == "cancelled" {
		s.aborted = true
		return Abort
	}
	s.done = true
	return Hold
}

// fail reads an event that reports an error: of its own, of the response, or as
// servers put it in streams of any format.
func (s *responsesStream) fail(data []byte) {
	object, err := rawjson.ParseObject(data, nil)
	if err != nil || s.failure != nil {
		return
	}
	if s.failure = chatFailure(object); s.failure != nil {
		return
	}
	kind, _ := object.Get("type")
	response, _ := object.Get("response")
	switch string(kind) {
	case `"response.failed"`:
		message, _ := rawjson.String(rawjson.Lookup(rawjson.Lookup(response, "error"), "message"))
		s.failure = &Failure{Message: cmp.Or(message, "the response failed")}
	case `"error"`:
		message, _ := object.Get("message")
		text, _ := rawjson.String(message)
		s.failure = &Failure{Message: cmp.Or(text, "the stream reports an error")}
	}
}

// Terminal implements Stream.
func (s *responsesStream) Terminal() bool { return s.done }

// Failure implements Stream.
func (s *responsesStream) Failure() *Failure { return s.failure }

// Complete implements Stream.
func (s *responsesStream) Complete() bool { return s.done && s.failure == nil }

// Result implements Stream.
func (s *responsesStream) Result() Result {
	if !s.done || s.failure != nil {
		return Result{Failure: s.failure, Aborted: s.aborted}
	}
	items := inOrder(s.items)
	result := responsesResult(s.response, items, s.conversation)
	for _, item := range items { // some servers give them other ids at the end
		result.identify(rawjson.Lookup(item, "id"))
	}
	return result
}

func inOrder(items []streamedItem) [][]byte {
	slices.SortStableFunc(items, func(a, b streamedItem) int { return cmp.Compare(a.index, b.index) })
	raw := make([][]byte, 0, len(items))
	for _, item := range items {
		if rawjson.Kind(item.raw) == '{' && rawjson.Valid(item.raw) == nil {
			raw = append(raw, item.raw)
		}
	}
	return raw
}

// Assemble implements Dialect. The terminal event has the whole response. Where
// a server leaves its output empty there, it is put together from the items as
// they came.
func (Responses) Assemble(stream []byte) ([]byte, error) {
	var response rawjson.Object
	var items []streamedItem
	for chunk := range chunks(stream) {
		switch kind, _ := chunk.Get("type"); string(kind) {
		case `"response.output_item.done"`:
			items = append(items, itemOf(chunk.Src))
		case `"response.completed"`, `"response.incomplete"`:
			raw, _ := chunk.Get("response")
			object, err := rawjson.ParseObject(raw, nil)
			if err == nil && response.Src == nil {
				response = object
			}
		}
	}
	if response.Src == nil {
		return nil, errNoChunks
	}
	if output, _ := response.Get("output"); empty(rawjson.Elements(output)) && len(items) > 0 {
		return response.Apply([]rawjson.Edit{{Key: "output", Value: joinItems(inOrder(items))}}), nil
	}
	return response.Src, nil
}
