package rawjson

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends what the quoted string raw stands for, as UTF-8: escapes
// of lone surrogates and bytes that are not UTF-8 become U+FFFD, as with
// encoding/json. It appends nothing if raw is not a string.
func AppendString(dst, raw []byte) []byte { return appendContents(dst, raw, false) }

// appendContents is AppendString, or AppendCanonical.
func appendContents(dst, raw []byte, canonical bool) []byte {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '"' {
		return dst
	}
	i++
	clean := utf8.Valid(raw)
	for i < len(raw) {
		if clean && !canonical {
			dst, i = appendPlain(dst, raw, i)
		}
		end := skipPlain(raw, i)
		if clean {
			dst = append(dst, raw[i:end]...)
		} else {
			dst = appendValid(dst, raw[i:end])
		}
		i = end
		switch {
		case i >= len(raw) || raw[i] == '"':
			return dst
		case raw[i] != '\\':
			dst = append(dst, raw[i])
			i++
		case canonical:
			dst, i = appendOwnEscape(dst, raw, i+1)
		default:
			dst, i = appendEscape(dst, raw, i+1)
		}
	}
	return dst
}

// appendPlain appends what stands in a string from raw[i] on as far as it is plain
// or a short escape and not near the end of raw, and says how far that is. Words
// are copied whole, and what is too much of them is written over.
func appendPlain(dst, raw []byte, i int) ([]byte, int) {
	dst = slices.Grow(dst, len(raw)-i) // no text is longer than what it is written as
	room := dst[len(dst):cap(dst)]
	n := 0
	for len(raw)-i >= 16 && len(room)-n >= 8 {
		x := binary.LittleEndian.Uint64(raw[i:])
		binary.LittleEndian.PutUint64(room[n:], x)
		m := specials(x)
		if m == 0 {
			i += 8
			n += 8
			continue
		}
		run := bits.TrailingZeros64(m) / 8
		i += run
		n += run
		if raw[i] != '\\' || shortEscapes[raw[i+1]] == 0 {
			break
		}
		room[n] = shortEscapes[raw[i+1]]
		i += 2
		n++
	}
	return dst[:len(dst)+n], i
}

// shortEscapes is what the characters behind a backslash stand for, 0 for others.
var shortEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'} //nolint:gochecknoglobals // a table

func appendValid(dst, plain []byte) []byte {
	for len(plain) > 0 {
		r, n := utf8.DecodeRune(plain)
		dst = utf8.AppendRune(dst, r)
		plain = plain[n:]
	}
	return dst
}

// appendEscape decodes the escape whose backslash is before raw[i].
func appendEscape(dst, raw []byte, i int) ([]byte, int) {
	if i >= len(raw) {
		return dst, i
	}
	if c := shortEscapes[raw[i]]; c != 0 {
		return append(dst, c), i + 1
	}
	if raw[i] == 'u' {
		r := codeUnit(raw, i+1)
		i = min(i+5, len(raw))
		if utf16.IsSurrogate(r) {
			pair := utf8.RuneError
			if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
				pair = utf16.DecodeRune(r, codeUnit(raw, i+2))
			}
			if pair != utf8.RuneError {
				i = min(i+6, len(raw))
			}
			r = pair
		}
		return utf8.AppendRune(dst, r), i
	}
	return append(dst, raw[i]), i + 1
}

// codeUnit decodes the four hexadecimal digits at raw[i], U+FFFD if there are none.
func codeUnit(raw []byte, i int) rune {
	if i+4 > len(raw) {
		return utf8.RuneError
	}
	var r rune
	for _, c := range raw[i : i+4] {
		d := unhex(c)
		if d < 0 {
			return utf8.RuneError
		}
		r = r<<4 | d
	}
	return r
}

func unhex(c byte) rune {
	switch {
	case c-'0' <= 9:
		return rune(c - '0')
	case (c|0x20)-'a' <= 5:
		return rune((c|0x20)-'a') + 10
	}
	return -1
}

// Quote appends s as a JSON string. Only what RFC 8259, section 7, demands is
// escaped: quotes, backslashes and control characters, not '<', '>' and '&'.
// Bytes that are not UTF-8 become U+FFFD.
func Quote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = AppendQuoted(dst, []byte(s))
	return append(dst, '"')
}

// AppendQuoted appends s as [Quote] does, without the quotes around it.
func AppendQuoted(dst, s []byte) []byte {
	clean := utf8.Valid(s)
	for i := 0; i < len(s); {
		end := skipPlain(s, i)
		if clean {
			dst = append(dst, s[i:end]...)
		} else {
			dst = appendValid(dst, s[i:end])
		}
		if i = end; i < len(s) {
			dst = appendEscaped(dst, s[i])
			i++
		}
	}
	return dst
}

// appendEscaped appends a character that may not stand in a string as it is.
func appendEscaped(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
