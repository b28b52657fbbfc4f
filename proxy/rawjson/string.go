package rawjson

import (
	"encoding/binary"
	"math/bits"
)

// string validates the string whose opening quote is at src[i], by RFC 8259,
// section 7. Most strings are short, and most bytes are in long ones.
func (s *scanner) string(i int) (int, fault) {
	src := s.src
	i++
	for range 4 {
		if len(src)-i < 8 {
			break
		}
		x := binary.LittleEndian.Uint64(src[i:])
		s.seen |= x
		m := specials(x)
		if m == 0 {
			i += 8
			continue
		}
		if end := i + bits.TrailingZeros64(m)/8; src[end] == '"' {
			return end + 1, faultNone
		}
		break
	}
	return s.blocks(i)
}

// rest validates what is left of a string from src[i] on, special by special.
func (s *scanner) rest(i int) (int, fault) {
	src := s.src
	for {
		from := i
		i = skipPlain(src, i)
		for _, c := range src[from:i] {
			s.seen |= uint64(c)
		}
		if i >= len(src) {
			return i, faultString
		}
		switch src[i] {
		case '"':
			return i + 1, faultNone
		case '\\':
			var f fault
			if i, f = s.escape(i + 1); f != faultNone {
				return i, f
			}
		default:
			return i, faultString
		}
	}
}

// escape validates the escape whose backslash is before src[i].
func (s *scanner) escape(i int) (int, fault) {
	src := s.src
	if i >= len(src) {
		return i, faultEscape
	}
	switch src[i] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return i + 1, faultNone
	case '/':
		s.foreign = true
		return i + 1, faultNone
	case 'u':
		for k := 1; k <= 4; k++ {
			if i+k >= len(src) || hexDigits[src[i+k]] < 0 {
				return i + k, faultHex
			}
		}
		s.foreign = s.foreign || !long(src[i:i+5])
		return i + 5, faultNone
	}
	return i, faultEscape
}
