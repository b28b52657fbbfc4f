package rawjson

import "unicode/utf8"

// Strings can be spelled in many ways: "é", "\u00e9", "\u00E9". One of them is
// Quote's, here called the canonical one. Nearly all texts are in it, for the
// common encoders spell so too; then strings are equal exactly if their bytes
// are, and nothing has to be unescaped to hash or to compare them.

// A spelling is what is known of how the strings of a text are spelled.
type spelling struct {
	known   bool   // the text was looked at, and what follows is so
	foreign bool   // there is an escape that Quote does not write
	seen    uint64 // has the top bit of a byte set if there is anything but ASCII
}

// join adds to a text a name that is spelled by Quote and a value, which may be none.
func (s *spelling) join(name string, value []byte) {
	for i := range len(name) {
		s.seen |= uint64(name[i])
	}
	if len(value) == 0 {
		return
	}
	v := scanner{src: value}
	_, f := v.value(0, 0)
	s.known = s.known && f == faultNone
	s.foreign = s.foreign || v.foreign
	s.seen |= v.seen
}

// Canonical reports whether all strings of the object, names included, are known
// to be as [Quote] spells them. Of an object that came out of an edit that is
// known if it was of the one that went in.
func (o Object) Canonical() bool {
	s := &o.spelling
	return s.known && !s.foreign && (s.seen&highs == 0 || utf8.Valid(o.Src))
}

// AppendCanonical appends the inside of the string raw as [Quote] spells it. It
// appends nothing if raw is not a string.
func AppendCanonical(dst, raw []byte) []byte { return appendContents(dst, raw, true) }

// appendOwnEscape respells the escape whose backslash is before raw[i].
func appendOwnEscape(dst, raw []byte, i int) ([]byte, int) {
	if i < len(raw) && ownShort[raw[i]] == 1 {
		return append(dst, '\\', raw[i]), i + 1
	}
	start := len(dst)
	dst, i = appendEscape(dst, raw, i)
	if len(dst) == start+1 {
		if c := dst[start]; c < 0x20 || c == '"' || c == '\\' {
			return appendEscaped(dst[:start], c), i
		}
	}
	return dst, i
}

// ownShort is 1 for the characters that with a backslash before them are an escape
// that Quote writes.
var ownShort = [256]byte{'"': 1, '\\': 1, 'b': 1, 'f': 1, 'n': 1, 'r': 1, 't': 1} //nolint:gochecknoglobals // a table

// long reports whether Quote writes the escape \u00XX, given from the u on.
func long(escape []byte) bool {
	if string(escape[:3]) != "u00" {
		return false
	}
	switch low := escape[4]; escape[3] {
	case '0':
		return low < '8' || low == 'b' || low == 'e' || low == 'f'
	case '1':
		return low <= '9' || low >= 'a'
	}
	return false
}
