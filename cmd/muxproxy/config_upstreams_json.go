package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// decodeUpstream reads the body of PUT /upstreams/{name}, and says of each of
// its fields what is wrong with it.
func decodeUpstream(text []byte) (upstream.Config, []error) {
	var fields struct {
		upstream.Config

		Replicas []json.RawMessage `json:"replicas"` // in place of Config's
	}
	wrong := decodeFields(text, "", &fields)
	c := fields.Config
	for i, replica := range fields.Replicas {
		var r upstream.ReplicaConfig
		wrong = append(wrong, decodeFields(replica, fmt.Sprintf("replicas[%d]", i), &r)...)
		c.Replicas = append(c.Replicas, r)
	}
	mended := c
	if len(wrong) > 0 && len(c.Replicas) == 0 {
		mended.Replicas = usable().Replicas // a misspelt field is not a missing one too
	}
	for _, invalid := range invalidFields(mended) {
		known := func(err error) bool { return strings.HasPrefix(err.Error(), invalid.Field+": ") }
		if !slices.ContainsFunc(wrong, known) {
			wrong = append(wrong, invalid)
		}
	}
	return c, wrong
}

// decodeFields decodes each member of a JSON object into the struct that into
// points to. The errors name the members, under path.
func decodeFields(text []byte, path string, into any) (wrong []error) {
	members, err := objectOf(text)
	if err != nil {
		return []error{fmt.Errorf("%s%w", strings.TrimPrefix(path+": ", ": "), err)}
	}
	for _, name := range sortedKeys(members) {
		// By itself, so that its error does not hide those of the others.
		alone, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(alone))
			d.DisallowUnknownFields()
			err = d.Decode(into)
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			wrong = append(wrong, fmt.Errorf("%s: %w", at, wrongType(mistyped)))
		} else if err != nil { // text known to be JSON: only the name can be wrong
			wrong = append(wrong, fmt.Errorf("%s: not known in this version", at))
		}
	}
	return wrong
}

// objectOf splits a JSON object into its members. The error of text that is not
// JSON names the line.
func objectOf(text []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(text, &members)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := bytes.TrimSpace(text[:min(syntax.Offset, int64(len(text)))])
		return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, wrongType(mistyped)
	}
	return members, err
}

// wrongType says what JSON should have held, in the words of JSON.
func wrongType(err *json.UnmarshalTypeError) error {
	want := "a string"
	switch err.Type.Kind() {
	case reflect.Map, reflect.Struct:
		want = "an object"
	case reflect.Slice:
		want = "an array"
	default:
	}
	return fmt.Errorf("must be %s, not %s", want, err.Value)
}

// usable is a configuration without problems.
func usable() upstream.Config {
	return upstream.Config{Replicas: []upstream.ReplicaConfig{{URL: "http://localhost"}}}
}

// invalidFields are all the fields of c that cannot be used: the one that is
// found first, the one that is found once that is mended, and so on.
func invalidFields(c upstream.Config) (all []*upstream.InvalidError) {
	c.Headers, c.Replicas = maps.Clone(c.Headers), slices.Clone(c.Replicas)
	for {
		invalid, ok := errors.AsType[*upstream.InvalidError](c.Validate())
		if !ok {
			return all
		}
		all = append(all, invalid)
		if !mend(&c, invalid.Field) {
			return all
		}
	}
}

// mend makes a field usable, and reports whether it knows how.
func mend(c *upstream.Config, field string) bool {
	switch field {
	case "style":
		c.Style = ""
		return true
	case "usage":
		c.Usage = ""
		return true
	case "api_key":
		c.APIKey = ""
		return true
	}
	if name, ok := strings.CutPrefix(field, "headers."); ok {
		delete(c.Headers, name)
		return true
	}
	for i := range c.Replicas {
		unique, r := fmt.Sprintf("mended-%d", i), &c.Replicas[i]
		switch {
		case field == fmt.Sprintf("replicas[%d].url", i) && r.URL != "http://"+unique:
			r.URL = "http://" + unique
			return true
		case field == fmt.Sprintf("replicas[%d].name", i) && r.Name != unique:
			r.Name = unique
			return true
		}
	}
	return false
}
