package dialect

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// A fingerprint hashes one message, part by part: each by itself, and the sums in
// their order, so that moving bytes from one part to the next changes the whole.
//
// Texts are hashed in the canonical spelling of JSON strings, see
// [rawjson.AppendCanonical], in which they usually are already.
type fingerprint struct {
	hash      uint64
	canonical bool // what raw strings are given is in that spelling
	scratch   []byte
	joined    []byte
	members   [16]rawjson.Member // as many as answers usually have
}

// fingerprints keeps scratch memory between calls.
var fingerprints = sync.Pool{New: func() any { return new(fingerprint) }} //nolint:gochecknoglobals // a cache

// maxScratch is what is kept; a larger message's memory is let go.
const maxScratch = 64 << 10

func newFingerprint() *fingerprint {
	f := fingerprints.Get().(*fingerprint)
	f.reset()
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

func (f *fingerprint) reset() { f.hash = 0 }

func (f *fingerprint) sum() uint64 { return f.hash }

func (f *fingerprint) number(n uint64) { f.hash = link(f.hash, n) }

// bytes adds a text.
func (f *fingerprint) bytes(b []byte) {
	f.scratch = rawjson.AppendQuoted(f.scratch[:0], b)
	f.number(xxh3.Hash(f.scratch))
}

// quoted adds the text that a JSON string stands for, an empty one for other values.
func (f *fingerprint) quoted(raw []byte) { f.number(xxh3.Hash(f.spelled(raw))) }

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
	f.bytes([]byte("tool_call"))
	f.bytes(id)
	f.bytes(name)
	f.number(valueHash(arguments))
}

// quotedCall is toolCall of JSON strings.
func (f *fingerprint) quotedCall(id, name, arguments []byte) {
	f.bytes([]byte("tool_call"))
	f.quoted(id)
	f.quoted(name)
	f.number(valueHash(f.unquoted(arguments)))
}

// content adds a message's content: text as a string or in parts is the same
// text, null is none, and other parts count as JSON values.
func (f *fingerprint) content(raw []byte) {
	if rawjson.Kind(raw) != '[' {
		f.quoted(raw)
		return
	}
	var text []byte
	parts := 0 // that text is of
	for part := range rawjson.Elements(raw) {
		t := rawjson.Lookup(part, "text")
		switch {
		case rawjson.Kind(t) != '"':
			f.number(xxh3.Hash(text))
			f.number(partHash(part))
			text, parts = nil, 0
			continue
		case parts == 0:
			text = f.spelled(t)
		case parts == 1:
			f.joined = append(f.joined[:0], text...)
			fallthrough
		default:
			f.joined = append(f.joined, f.spelled(t)...)
			text = f.joined
		}
		parts++
	}
	f.number(xxh3.Hash(text))
}
