package dialect

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// A fingerprint hashes messages, part by part: each by itself, and the sums in
// their order, so that moving bytes from one part to the next changes the whole.
//
// Texts are hashed in the canonical spelling of JSON strings, see
// [rawjson.AppendCanonical], in which they usually are already.
type fingerprint struct {
	hash  uint64 // of the parts of a message so far
	calls uint64 // of its tool calls and other blocks, which come last; 0 is none

	canonical bool // what raw strings are given is in that spelling
	scratch   []byte
	joined    []byte
	links     []uint64           // of the conversation so far
	elements  []registry.Element // of the list that it is
	members   [16]rawjson.Member // as many as answers usually have
	at        rawjson.Cursor     // in the list
}

// noText is the hash of an empty text.
var noText = xxh3.Hash(nil) //nolint:gochecknoglobals // a constant

// fingerprints keeps scratch memory between calls.
var fingerprints = sync.Pool{New: func() any { return new(fingerprint) }} //nolint:gochecknoglobals // a cache

// What is kept; memory for larger messages and longer conversations is let go.
const (
	maxScratch  = 64 << 10
	maxElements = 16 << 10
)

func newFingerprint() *fingerprint {
	f := fingerprints.Get().(*fingerprint)
	f.reset()
	f.links = f.links[:0]
	return f
}

// free gives f back. It must not be used afterwards.
func (f *fingerprint) free() {
	f.canonical = false
	clear(f.members[:])
	if cap(f.scratch) > maxScratch {
		f.scratch = nil
	}
	if cap(f.joined) > maxScratch {
		f.joined = nil
	}
	f.at = rawjson.Cursor{}
	if cap(f.elements) > maxElements {
		f.links, f.elements = nil, nil
	}
	fingerprints.Put(f)
}

// parse parses an answer, of which f then gets raw strings. It is gone when f is.
func (f *fingerprint) parse(answer []byte) (rawjson.Object, error) {
	object, err := rawjson.ParseObject(answer, f.members[:0])
	f.of(object)
	return object, err
}

// of tells f what the raw strings that it will get are taken from.
func (f *fingerprint) of(object rawjson.Object) { f.canonical = object.Canonical() }

func (f *fingerprint) reset() { f.hash, f.calls = 0, 0 }

func (f *fingerprint) sum() uint64 {
	if f.calls == 0 {
		return f.hash
	}
	return link(f.hash, f.calls)
}

func (f *fingerprint) number(n uint64) { f.hash = link(f.hash, n) }

// bytes adds a text.
func (f *fingerprint) bytes(b []byte) { f.number(f.text(b)) }

// text hashes a text.
func (f *fingerprint) text(b []byte) uint64 {
	f.scratch = rawjson.AppendQuoted(f.scratch[:0], b)
	return xxh3.Hash(f.scratch)
}

// quoted adds the text that a JSON string stands for, an empty one for other values.
func (f *fingerprint) quoted(raw []byte) { f.number(f.string(raw)) }

// string hashes the text that a JSON string stands for.
func (f *fingerprint) string(raw []byte) uint64 { return xxh3.Hash(f.spelled(raw)) }

// block adds the hash of a tool call or another part that comes behind the text.
func (f *fingerprint) block(hash uint64) { f.calls = link(f.calls, hash) }

// spelled gives the inside of a JSON string in its canonical spelling, valid until
// the next call.
func (f *fingerprint) spelled(raw []byte) []byte {
	if len(raw) >= 2 && raw[0] == '"' && (f.canonical || bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw)) {
		return raw[1 : len(raw)-1]
	}
	f.scratch = rawjson.AppendCanonical(f.scratch[:0], raw)
	return f.scratch
}

// unquoted gives the contents of a JSON string, valid until the next call: in
// place where the text has nothing to decode.
func (f *fingerprint) unquoted(raw []byte) []byte {
	if len(raw) >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return raw[1 : len(raw)-1]
	}
	f.scratch = rawjson.AppendString(f.scratch[:0], raw)
	return f.scratch
}

// toolCall adds one tool call. The arguments are JSON text.
func (f *fingerprint) toolCall(id, name, arguments []byte) {
	f.block(callSum(f.text(id), f.text(name), valueHash(arguments)))
}

// quotedCall is toolCall of JSON strings.
func (f *fingerprint) quotedCall(id, name, arguments []byte) {
	f.block(callSum(f.string(id), f.string(name), valueHash(f.unquoted(arguments))))
}

func callSum(id, name, arguments uint64) uint64 { return link(link(id, name), arguments) }

// content adds a message's content, see contentHash.
func (f *fingerprint) content(raw []byte) {
	at := rawjson.Walk(raw)
	f.number(f.contentHash(&at))
}

// join is a text of so many strings with one more, in canonical spelling, and valid
// until the next call.
func (f *fingerprint) join(text []byte, strings int, raw []byte) []byte {
	switch strings {
	case 0:
		return f.spelled(raw)
	case 1:
		f.joined = append(f.joined[:0], text...)
	}
	f.joined = append(f.joined, f.spelled(raw)...)
	return f.joined
}

// contentHash hashes the content at a cursor: text as a string or in parts is the
// same text, null is none, and other parts count as JSON values.
func (f *fingerprint) contentHash(at *rawjson.Cursor) uint64 {
	if at.Kind() != '[' {
		return f.string(at.Value())
	}
	var text []byte
	var before uint64 // what is before it, 0 if nothing is
	parts := 0        // that text is of
	for range at.Elements {
		part := *at
		var t []byte
		for key := range at.Fields {
			if t == nil && string(key) == "text" {
				t = at.Value()
			}
		}
		if rawjson.Kind(t) != '"' {
			before = link(link(before, xxh3.Hash(text)), partHash(part.Value()))
			text, parts = nil, 0
			continue
		}
		text = f.join(text, parts, t)
		parts++
	}
	if before == 0 {
		return xxh3.Hash(text)
	}
	return link(before, xxh3.Hash(text))
}
