// Package rawjson reads and edits JSON text without decoding it.
//
// A proxy has to look at a handful of fields of bodies that are megabytes long
// and must hand on everything else byte for byte: key order, white space,
// integers that no float64 holds, lone surrogates, unknown members. So a body
// is validated once, the byte ranges of its top-level members are noted, and an
// edit is a splice between those ranges.
//
// [ParseObject] and [Valid] are strict: they accept exactly the grammar of
// RFC 8259, nested at most [MaxDepth] deep. Two things that the grammar allows
// are left for the receiver to judge: escapes of lone surrogates (section 8.2)
// and bytes in strings that are not UTF-8 (section 8.1). A byte order mark is
// an error.
//
// Everything else works on text already known to be valid, such as a raw value
// out of an [Object]. Text that is not valid gives unspecified results, but
// neither a panic nor an endless loop.
//
// Nothing here decodes a number into a float64 or builds a map. Returned slices
// alias the text they were found in, with their capacity cut to their length,
// unless a function says otherwise. All functions may be called concurrently
// as long as nobody changes that text.
package rawjson

import (
	"errors"
	"fmt"
)

// Limits that RFC 8259, section 9, lets a parser set.
const (
	// MaxDepth is how many objects and arrays may be open at once.
	MaxDepth = 1000
	// MaxMembers is how many members an object given to [ParseObject] may have.
	// A [Member] takes ten times the memory of the shortest one's text.
	MaxMembers = 1 << 16
)

// ErrNotObject is returned by [ParseObject] for valid JSON that is not an object.
var ErrNotObject = errors.New("JSON text is not an object")

// A SyntaxError says where and why a text is not JSON. It names at most one
// byte of the text, so that it can be logged and shown to clients.
type SyntaxError struct {
	Offset int64  // of the byte at fault; the text's length when it ended too early
	Reason string // "unexpected 'x', want a value"
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// Valid returns nil if src is one JSON value with optional white space around
// it, and a [*SyntaxError] otherwise.
func Valid(src []byte) error {
	s := scanner{src: src}
	i, f := s.value(skipSpace(src, 0), 0)
	if f == faultNone {
		i, f = scanEnd(src, i)
	}
	return f.at(src, i)
}
