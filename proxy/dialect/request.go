package dialect

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// parseMessages reads a request that is a conversation in `messages`. read are
// the fields that muxproxy reads.
func parseMessages(body []byte, read ...string) (*Request, error) {
	r, err := parseRequest(body, read...)
	if err != nil {
		return nil, err
	}
	messages, ok := r.Object.Get("messages")
	if !ok || rawjson.Kind(messages) != '[' {
		return nil, &RequestError{Param: "messages", Message: "messages must be an array of messages"}
	}
	if empty(rawjson.Elements(messages)) {
		return nil, &RequestError{Param: "messages", Message: "messages must hold at least one message"}
	}
	return r, nil
}

// parseRequest reads what requests of all formats have. read are the fields
// that muxproxy reads, which therefore may not be ambiguous.
func parseRequest(body []byte, read ...string) (*Request, error) {
	object, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	if err := unambiguous(object, read...); err != nil {
		return nil, err
	}
	r := &Request{Object: object, choices: 1}
	if r.Model, err = optionalString(object, "model"); err != nil {
		return nil, err
	}
	if r.Stream, err = optionalBool(object, "stream"); err != nil {
		return nil, err
	}
	return r, nil
}

func parseObject(body []byte) (rawjson.Object, error) {
	object, err := rawjson.ParseObject(body, nil)
	if err != nil {
		return object, &RequestError{Message: fmt.Sprintf("the body must be a JSON object: %v", err)}
	}
	return object, nil
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
