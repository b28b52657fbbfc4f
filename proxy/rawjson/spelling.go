package rawjson

import "unicode/utf8"

// Strings can be spelled in many ways: "é", "\u00e9", "\u00E9". One of them is
// Quote's, here called the canonical one. Nearly all texts are in it, for the
// common encoders spell so too; then strings are equal exactly if their bytes
// are, and nothing has to be unescaped to hash or to compare them.

// Canonical reports whether all strings of the object, names included, are known
// to be as [Quote] spells them. Of an object that came out of an edit that is
// known if it was of the one that went in.
func (o Object) Canonical() bool { return o.canonical }

// canonical reports whether value is JSON whose strings are as Quote spells them.
func canonical(value []byte) bool {
	s := scanner{src: value}
	_, f := s.value(0, 0)
	s.checkUTF8(len(value))
	return f == faultNone && !s.foreign
}

// checkUTF8 sees whether the text is UTF-8 up to src[end], which has been scanned,
// from where the last check ended. Most texts are ASCII.
func (s *scanner) checkUTF8(end int) {
	if s.seen&highs != 0 && !utf8.Valid(s.src[s.checked:end]) {
		s.foreign = true
	}
	s.checked = end
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
