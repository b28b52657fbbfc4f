package dialect

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// Overrides is what a session changes in a request.
type Overrides struct {
	Model    string                     // "" keeps the harness's
	Sampling map[string]json.RawMessage // top-level fields
	Yield    bool                       // sampling gives way to what the harness sent
	Usage    UsageWish
	Capture  Capture
}

// UsageWish says whether muxproxy wants a stream to report its usage.
type UsageWish int

// The wishes, in rising order of insistence.
const (
	UsageAsIs     UsageWish = iota // leave the request alone
	UsageAsked                     // ask, unless the harness declined it explicitly
	UsageRequired                  // ask in any case: a token limit depends on it
)

// edits are those that write o.Model and o.Sampling. own gives a field's name
// in a format that has only one for it; where sampling has a field under that
// name and another, the former counts. The error is a *RequestError.
func (o *Overrides) edits(object rawjson.Object, own func(key string) string) ([]rawjson.Edit, error) {
	var edits []rawjson.Edit
	if o.Model != "" {
		edits = append(edits, rawjson.Edit{Key: "model", Value: rawjson.Quote(nil, o.Model)})
	}
	for _, key := range o.fields() {
		name := own(key)
		if _, both := o.Sampling[name]; both && name != key {
			continue
		}
		if err := unambiguous(object, name); err != nil {
			return nil, err
		}
		if o.Yield && given(object, name) {
			continue
		}
		edits = append(edits, rawjson.Edit{Key: name, Value: o.Sampling[key]})
	}
	return edits, nil
}

// onlyMaxTokens is the own of formats that have max_tokens alone.
func onlyMaxTokens(key string) string {
	if key == "max_completion_tokens" {
		return "max_tokens"
	}
	return key
}

// edited is the value of a field once the edits are made, nil if it has none.
func edited(object rawjson.Object, edits []rawjson.Edit, key string) []byte {
	for _, e := range slices.Backward(edits) {
		if e.Key == key {
			return e.Value
		}
	}
	value, _ := object.Get(key)
	return value
}

// fields are the sampling fields in a fixed order.
func (o *Overrides) fields() []string {
	if len(o.Sampling) == 0 {
		return nil // as of most sessions, and sorting nothing is not free
	}
	return slices.Sorted(maps.Keys(o.Sampling))
}
