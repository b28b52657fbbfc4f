package dialect

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// parseMessages reads a request that is a conversation in `messages`. read are
// the fields that muxproxy reads.
func parseMessages(body []byte, sent Sent, read ...string) (*Request, error) {
	r, err := parseRequest(body, sent, messagesField, read...)
	if err != nil {
		return nil, err
	}
	messages, ok := r.Object.Get(messagesField)
	if !ok || rawjson.Kind(messages) != '[' {
		return nil, &RequestError{Param: "messages", Message: "messages must be an array of messages"}
	}
	if empty(rawjson.Elements(messages)) {
		return nil, &RequestError{Param: "messages", Message: "messages must hold at least one message"}
	}
	return r, nil
}

// messagesField is where most formats have the conversation.
const messagesField = "messages"

// parseRequest reads what requests of all formats have. list is the field that may
// be known to the session; read are those that muxproxy reads, which therefore may not
// be ambiguous.
func parseRequest(body []byte, sent Sent, list string, read ...string) (*Request, error) {
	r := &Request{choices: 1}
	object, err := rawjson.ParseObjectKnowing(body, r.members[:0], func(key, rest []byte) int {
		if sent == nil || string(key) != list {
			return 0
		}
		r.known = sent.Known(list, rest)
		return endOf(r.known.Elements)
	})
	if err != nil {
		return nil, &RequestError{Message: fmt.Sprintf("the body must be a JSON object: %v", err)}
	}
	if err := unambiguous(object, read...); err != nil {
		return nil, err
	}
	r.Object = object
	if r.Model, err = optionalString(object, "model"); err != nil {
		return nil, err
	}
	if r.Stream, err = optionalBool(object, "stream"); err != nil {
		return nil, err
	}
	return r, nil
}

// endOf is where the last element ends, 0 if there is none.
func endOf(elements []registry.Element) int {
	if len(elements) == 0 {
		return 0
	}
	return elements[len(elements)-1].End
}

// unambiguous refuses a key that stands twice: parsers disagree on which of
// the two counts, so muxproxy could read one and the upstream obey the other.
func unambiguous(object rawjson.Object, keys ...string) error {
	for _, key := range keys {
		if object.Count(key) > 1 {
			return &RequestError{Param: key, Message: fmt.Sprintf("the field %q stands more than once in the body", key)}
		}
	}
	return nil
}

func optionalString(object rawjson.Object, key string) (string, error) {
	raw, ok := object.Get(key)
	if !ok || rawjson.Kind(raw) == 'n' {
		return "", nil
	}
	value, ok := rawjson.String(raw)
	if !ok {
		return "", &RequestError{Param: key, Message: key + " must be a string"}
	}
	return value, nil
}

func optionalBool(object rawjson.Object, key string) (bool, error) {
	raw, ok := object.Get(key)
	if !ok || rawjson.Kind(raw) == 'n' {
		return false, nil
	}
	value, ok := rawjson.Bool(raw)
	if !ok {
		return false, &RequestError{Param: key, Message: key + " must be true or false"}
	}
	return value, nil
}

func empty[T any](seq func(yield func(T) bool)) bool {
	for range seq {
		return false
	}
	return true
}

func noFields(object []byte) bool {
	for range rawjson.Fields(object) {
		return false
	}
	return true
}

// given says whether the harness set a field: null is what clients send for a
// field that they leave open.
func given(object rawjson.Object, key string) bool {
	raw, ok := object.Get(key)
	return ok && rawjson.Kind(raw) != 'n'
}
