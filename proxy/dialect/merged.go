package dialect

import (
	"cmp"
	"errors"
	"iter"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/sse"
)

// errNoChunks is a stream that amounts to nothing.
var errNoChunks = errors.New("the stream holds no chunk")

// chunks are the data of a stream's events, as far as they are JSON objects.
func chunks(stream []byte) iter.Seq[rawjson.Object] {
	return func(yield func(rawjson.Object) bool) {
		var scanner sse.Scanner
		for len(stream) > 0 {
			n := scanner.Next(stream)
			if n == 0 {
				n = len(stream)
			}
			chunk, err := rawjson.ParseObject(sse.Data(stream[:n]), nil)
			stream = stream[n:]
			if err == nil && !yield(chunk) {
				return
			}
		}
	}
}

// merged is a JSON object put together from many, its keys in the order of
// their first appearance.
type merged struct {
	keys   []string
	fields map[string]*mergedField
}

// mergedField holds one of its three.
type mergedField struct {
	raw    []byte
	object *merged
	items  []mergedItem
}

// mergedItem is an element of a list whose elements carry their index, and
// are kept in its order.
type mergedItem struct {
	index int64
	value *merged
}

func (m *merged) field(key string) *mergedField {
	if f, ok := m.fields[key]; ok {
		return f
	}
	if m.fields == nil {
		m.fields = map[string]*mergedField{}
	}
	f := &mergedField{}
	m.keys = append(m.keys, key)
	m.fields[key] = f
	return f
}

// once keeps the first value that is not null or an empty string.
func (m *merged) once(key string, raw []byte) {
	f := m.field(key)
	if f.raw == nil || rawjson.Kind(f.raw) == 'n' || string(f.raw) == `""` {
		f.raw = raw
	}
}

// latest keeps the last value that is not null.
func (m *merged) latest(key string, raw []byte) {
	f := m.field(key)
	if f.raw == nil || rawjson.Kind(raw) != 'n' {
		f.raw = raw
	}
}

// accumulate joins strings and arrays, merges objects and keeps the last of
// anything else.
func (m *merged) accumulate(key string, raw []byte) {
	f := m.field(key)
	kind := rawjson.Kind(raw)
	switch {
	case kind == '{':
		f.raw = nil
		m.object(key).accumulateAll(raw)
	case f.object != nil || f.items != nil:
	case kind == '"' && rawjson.Kind(f.raw) == '"':
		f.raw = joinStrings(f.raw, raw)
	case kind == '[' && rawjson.Kind(f.raw) == '[':
		f.raw = joinArrays(f.raw, raw)
	case kind != 'n' || f.raw == nil:
		f.raw = append([]byte(nil), raw...) // grown in place from here on
	}
}

// joinStrings joins two JSON strings inside their quotes, so that a surrogate
// pair divided between them comes out whole. It grows a, which may be nil, in
// place.
func joinStrings(a, b []byte) []byte {
	if len(a) == 0 {
		return append(a, b...)
	}
	return append(a[:len(a)-1], b[1:]...)
}

func joinArrays(a, b []byte) []byte {
	switch {
	case empty(rawjson.Elements(b)):
		return a
	case empty(rawjson.Elements(a)):
		return append([]byte(nil), b...)
	default:
		return append(append(a[:len(a)-1], ','), b[1:]...)
	}
}

// accumulateAll accumulates every member of an object.
func (m *merged) accumulateAll(object []byte) {
	for name, value := range rawjson.Fields(object) {
		m.accumulate(string(name), value)
	}
}

// replace sets a value whatever was there.
func (m *merged) replace(key string, raw []byte) { *m.field(key) = mergedField{raw: raw} }

func (m *merged) object(key string) *merged {
	f := m.field(key)
	if f.object == nil {
		f.object = &merged{}
	}
	return f.object
}

// list makes the list under key, even if it stays empty.
func (m *merged) list(key string) {
	if f := m.field(key); f.items == nil {
		f.items = []mergedItem{}
	}
}

// items are the elements of the list under key.
func (m *merged) items(key string) []mergedItem {
	if f, ok := m.fields[key]; ok {
		return f.items
	}
	return nil
}

// item is the element of the list under key that raw is a piece of.
func (m *merged) item(key string, raw []byte) *merged {
	index, _ := rawjson.Int(rawjson.Lookup(raw, "index"))
	return m.itemAt(key, index)
}

// itemAt is the element of that index of the list under key.
func (m *merged) itemAt(key string, index int64) *merged {
	f := m.field(key)
	for _, it := range f.items {
		if it.index == index {
			return it.value
		}
	}
	value := &merged{}
	at, _ := slices.BinarySearchFunc(f.items, index, func(it mergedItem, index int64) int { return cmp.Compare(it.index, index) })
	f.items = slices.Insert(f.items, at, mergedItem{index, value})
	return value
}

// text is the merged object as JSON.
func (m *merged) text() ([]byte, error) {
	if len(m.keys) == 0 {
		return nil, errNoChunks
	}
	return m.appendTo(nil), nil
}

func (m *merged) appendTo(b []byte) []byte {
	b = append(b, '{')
	for i, key := range m.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.Quote(b, key)
		b = append(b, ':')
		b = m.fields[key].appendTo(b)
	}
	return append(b, '}')
}

func (f *mergedField) appendTo(b []byte) []byte {
	switch {
	case f.object != nil:
		return f.object.appendTo(b)
	case f.items != nil:
		b = append(b, '[')
		for i, it := range f.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = it.value.appendTo(b)
		}
		return append(b, ']')
	default:
		return append(b, f.raw...)
	}
}
