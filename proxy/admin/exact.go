package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// The faults that only decoding finds.
const (
	unexpectedField = "unexpected property" // huma's words for a field it does not know
	noInteger       = "expected an integer of 64 bits, without a fraction"
)

// decode is json.Unmarshal that takes field names only as they are written:
// encoding/json, and huma's validation with it, would take ID for id.
func decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	fault := inexact(text, reflect.TypeOf(into), "body")
	if _, found := errors.AsType[FieldError](fault); found || err == nil {
		return fault
	}
	return err
}

// inexact finds the first field of a JSON text that is not spelt as t spells it, or
// that is an integer (20.0, say) to a schema and not to t. Types that decode
// themselves are not looked into.
func inexact(text []byte, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		if t.Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return nil
		}
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		if json.Unmarshal(text, reflect.New(t).Interface()) != nil {
			return FieldError{noInteger, at}
		}
	case t.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return err
		}
		fields := jsonFields(t)
		for name, value := range members {
			field, ok := fields[name]
			if !ok {
				return FieldError{unexpectedField, at + "." + name}
			}
			if err := inexact(value, field, at+"."+name); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Slice:
		var elements []json.RawMessage
		if err := json.Unmarshal(text, &elements); err != nil {
			return err
		}
		for i, value := range elements {
			if err := inexact(value, t.Elem(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// jsonFields are the types of a struct's fields by their names in JSON.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = f.Type
		}
	}
	return fields
}
