package rawjson

import "bytes"

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

// skipString looks for quotes only. One with an odd number of backslashes
// before it is escaped.
func skipString(src []byte, i int) int {
	for i++; i < len(src); i++ {
		n := bytes.IndexByte(src[i:], '"')
		if n < 0 {
			break
		}
		i += n
		escapes := i
		for src[escapes-1] == '\\' {
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
