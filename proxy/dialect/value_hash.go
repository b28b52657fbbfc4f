package dialect

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// valueHash is equal for equal JSON values, whatever their spelling: white
// space, key order, escapes, 1 and 1.0. Text that is no JSON hashes as itself.
func valueHash(text []byte) uint64 {
	if rawjson.Valid(text) != nil {
		return xxh3.Hash(text)
	}
	at := rawjson.Walk(text)
	return hashAt(&at)
}

// partHash hashes a part of a message's content as a JSON value, without the
// mark up to where a provider shall cache: harnesses move it from turn to turn.
func partHash(part []byte) uint64 { return hashWithout(part, "cache_control") }

// itemHash hashes an item as a JSON value, without what only the provider's
// store knows it by and how far it had come.
func itemHash(item []byte) uint64 { return hashWithout(item, "id", "status") }

func hashWithout(raw []byte, names ...string) uint64 {
	at := rawjson.Walk(raw)
	if at.Kind() != '{' {
		return hashAt(&at)
	}
	var acc uint64
	for key := range at.Fields {
		if !slices.Contains(names, string(key)) {
			acc += link(xxh3.Hash(key), hashAt(&at))
		}
	}
	return acc
}

// hashAt is valueHash of the value at a cursor.
func hashAt(at *rawjson.Cursor) uint64 {
	var acc uint64
	kind := at.Kind()
	switch kind {
	case '{':
		for key := range at.Fields {
			// A sum does not depend on the order of the members.
			acc += link(xxh3.Hash(key), hashAt(at))
		}
	case '[':
		for range at.Elements {
			acc = link(acc, hashAt(at))
		}
	case '"':
		acc = spelledHash(at.Value())
	case '0':
		acc = numberHash(at.Value())
	default:
		at.Value()
	}
	return link(uint64(kind), acc)
}

// spelledHash hashes a string in its canonical spelling.
func spelledHash(raw []byte) uint64 {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return xxh3.Hash(raw[1 : len(raw)-1])
	}
	var room [128]byte
	return xxh3.Hash(rawjson.AppendCanonical(room[:0], raw))
}

// exactFloat is how many digits any float64 holds exactly.
const exactFloat = 15

func numberHash(raw []byte) uint64 {
	if len(raw) <= exactFloat {
		if n, ok := rawjson.Int(raw); ok {
			return math.Float64bits(float64(n))
		}
	}
	text := string(raw)
	if f, err := strconv.ParseFloat(text, 64); err == nil && (len(raw) <= exactFloat || f != math.Trunc(f)) {
		return math.Float64bits(f + 0) // -0 and 0 are one number
	}
	return xxh3.Hash(raw)
}
