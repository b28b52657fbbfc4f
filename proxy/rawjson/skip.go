package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The skip functions go over text known to be valid, which takes a fraction of
// the time of scanning it. On other text they stop somewhere up to its end.

// skipValue returns the offset after the value at src[i], i if there is none.
func skipValue(src []byte, i int) int {
	if i >= len(src) {
		return i
	}
	switch src[i] {
	case '"':
		return skipString(src, i)
	case '{', '[':
		return skipNested(src, i)
	}
	for i < len(src) {
		switch src[i] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return i
		}
		i++
	}
	return i
}

// skipNested goes over an object or array by counting brackets outside of strings.
func skipNested(src []byte, i int) int {
	depth := 0
	for i < len(src) {
		switch src[i] {
		case '"':
			i = skipString(src, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}

// skipString goes over the string whose opening quote is at src[i].
func skipString(src []byte, i int) int {
	end, _ := skipShortString(src, i+1)
	if end < len(src) && src[end] == '"' {
		return end + 1
	}
	return skipLongString(src, end)
}

// skipName is skipString for the name of a member, which it also gives unescaped.
func skipName(src []byte, i int) (name []byte, end int) {
	end, found := skipShortString(src, i+1)
	if found && src[end] == '"' {
		return src[i+1 : end : end], end + 1
	}
	end = skipLongString(src, end)
	if end-i < len(`""`) {
		return nil, end // the text was cut
	}
	return unescape(src[i:end]), end
}

// skipShortString looks for the first special character in the next 16 from src[i]
// on. The end that it gives is that character, if it was found, or what is to be
// looked at next.
func skipShortString(src []byte, i int) (end int, found bool) {
	for range 2 {
		if len(src)-i < 8 {
			break
		}
		if m := specials(binary.LittleEndian.Uint64(src[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8, true
		}
		i += 8
	}
	return i, false
}

// skipLongString goes over what is left of a string from src[i] on, which is no
// escaped character. It looks for quotes only; one with an odd number of
// backslashes before it is escaped.
func skipLongString(src []byte, i int) int {
	from := i
	for ; i < len(src); i++ {
		n := bytes.IndexByte(src[i:], '"')
		if n < 0 {
			break
		}
		i += n
		escapes := i
		for escapes > from && src[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i + 1
		}
	}
	return len(src)
}

// skipSeparator goes from the end of a key or value to the start of what follows
// the colon or comma after it.
func skipSeparator(src []byte, i int, separator byte) int {
	i = skipSpace(src, i)
	if i < len(src) && src[i] == separator {
		i = skipSpace(src, i+1)
	}
	return i
}

func skipSpace(src []byte, i int) int {
	for i < len(src) && src[i] <= ' ' && (src[i] == ' ' || src[i] == '\n' || src[i] == '\r' || src[i] == '\t') {
		i++
	}
	return i
}
