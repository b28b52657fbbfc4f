package rawjson

import (
	"bytes"
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
		if clean {
			dst, i = appendRun(dst, raw, i, canonical)
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

// appendRun appends what stands in a string from raw[i] on, up to what is rare or
// near the end of raw, and says where that is. Words are copied whole, and what is
// too much of them is written over.
func appendRun(dst, raw []byte, i int, canonical bool) ([]byte, int) {
	dst = slices.Grow(dst, len(raw)-i) // no text is longer than what it is written as
	room := dst[len(dst):cap(dst)]
	n := 0
	for len(raw)-i >= 16 && len(room)-n >= 16 {
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
		if raw[i] != '\\' {
			break
		}
		c := raw[i+1]
		if canonical && ownShort[c] == 1 {
			room[n], room[n+1] = '\\', c
			i += 2
			n += 2
			continue
		}
		if short := shortEscapes[c]; short != 0 {
			room[n] = short
			i += 2
			n++
			continue
		}
		r := codeUnit(raw, i+2)
		if c != 'u' || utf16.IsSurrogate(r) || canonical && (r < 0x20 || r == '"' || r == '\\') {
			break
		}
		i += len(`\u0000`)
		n += utf8.EncodeRune(room[n:], r)
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
	b := raw[i : i+4]
	r := hexDigits[b[0]]<<12 | hexDigits[b[1]]<<8 | hexDigits[b[2]]<<4 | hexDigits[b[3]]
	if r < 0 {
		return utf8.RuneError
	}
	return r
}

// hexDigits is what hexadecimal digits stand for, -1 for other characters.
var hexDigits = func() (digits [256]rune) { //nolint:gochecknoglobals // a table
	for c := range digits {
		digits[c] = -1
	}
	for d, c := range []byte("0123456789abcdef") {
		digits[c], digits[bytes.ToUpper([]byte{c})[0]] = rune(d), rune(d)
	}
	return digits
}()

// Quote appends s as a JSON string. Only what RFC 8259, section 7, demands is
// escaped: quotes, backslashes and control characters, not '<', '>' and '&'.
// Bytes that are not UTF-8 become U+FFFD.
func Quote(dst []byte, s string) []byte {
	dst = append(slices.Grow(dst, len(s)+len(`""`)), '"')
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
