package dialect

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// A Conversation is the messages of a request as chained fingerprints.
//
// A fingerprint covers what a harness gives back unchanged: role, text,
// tool-call ids and names, and arguments as JSON values. The rest (key order,
// escapes, reasoning, content as a string or as parts) differs between clients
// that re-serialise, and is left out. Links are stable across processes.
type Conversation struct {
	// Prefixes holds, for each message, the link of the conversation up to
	// and including it.
	Prefixes []uint64

	text *text // instead of messages; nil if there is none
}

// TextPrefixes returns, if the conversation is one text, what hashes its
// beginnings of the lengths that it is given, which ascend; otherwise nil.
func (c Conversation) TextPrefixes() func(lengths []int) []uint64 {
	if c.text == nil {
		return nil
	}
	return c.text.prefixes
}

// Forget lets go of the request that the conversation was made of. TextPrefixes
// finds nothing afterwards.
func (c Conversation) Forget() {
	if c.text != nil {
		c.text.raw = nil
	}
}

// Continued is the link of the conversation followed by one more message.
func (c Conversation) Continued(message uint64) uint64 {
	var last uint64
	if n := len(c.Prefixes); n > 0 {
		last = c.Prefixes[n-1]
	}
	return link(last, message)
}

func link(previous, message uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], previous)
	binary.LittleEndian.PutUint64(b[8:], message)
	return xxhash.Sum64(b[:])
}

// A fingerprint hashes one message, part by part. Parts are delimited, so that
// moving bytes from one part to the next changes the sum.
type fingerprint struct {
	digest  xxhash.Digest
	scratch []byte
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
	if cap(f.scratch) > maxScratch {
		f.scratch = nil
	}
	fingerprints.Put(f)
}

func (f *fingerprint) reset() { f.digest.Reset() }

func (f *fingerprint) sum() uint64 { return f.digest.Sum64() }

// bytes adds a delimited part.
func (f *fingerprint) bytes(b []byte) {
	f.digest.Write(b) //nolint:errcheck // documented never to fail
	f.number(uint64(len(b)))
}

func (f *fingerprint) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	f.digest.Write(b[:]) //nolint:errcheck // documented never to fail
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

// valueHash is equal for equal JSON values, whatever their spelling: white
// space, key order, escapes, 1 and 1.0. Text that is no JSON hashes as itself.
func valueHash(text []byte) uint64 {
	if rawjson.Valid(text) != nil {
		return xxhash.Sum64(text)
	}
	return validValueHash(text)
}

// partHash hashes a part of a message's content as a JSON value, without the
// mark up to where a provider shall cache: harnesses move it from turn to turn.
func partHash(part []byte) uint64 { return hashWithout(part, "cache_control") }

// itemHash hashes an item as a JSON value, without what only the provider's
// store knows it by and how far it had come.
func itemHash(item []byte) uint64 { return hashWithout(item, "id", "status") }

func hashWithout(raw []byte, names ...string) uint64 {
	if rawjson.Kind(raw) != '{' {
		return validValueHash(raw)
	}
	var acc uint64
	for key, value := range rawjson.Fields(raw) {
		if !slices.Contains(names, string(key)) {
			acc += link(xxhash.Sum64(key), validValueHash(value))
		}
	}
	return acc
}

func validValueHash(raw []byte) uint64 {
	var acc uint64
	kind := rawjson.Kind(raw)
	switch kind {
	case '{':
		for key, value := range rawjson.Fields(raw) {
			// A sum does not depend on the order of the members.
			acc += link(xxhash.Sum64(key), validValueHash(value))
		}
	case '[':
		for value := range rawjson.Elements(raw) {
			acc = link(acc, validValueHash(value))
		}
	case '"':
		acc = xxhash.Sum64(rawjson.AppendString(nil, raw))
	case '0':
		acc = numberHash(raw)
	}
	return link(uint64(kind), acc)
}

// exactFloat is how many digits any float64 holds exactly.
const exactFloat = 15

func numberHash(raw []byte) uint64 {
	text := string(raw)
	if f, err := strconv.ParseFloat(text, 64); err == nil && (len(raw) <= exactFloat || f != math.Trunc(f)) {
		return math.Float64bits(f + 0) // -0 and 0 are one number
	}
	return xxhash.Sum64(raw)
}
