package rawjson

import (
	"encoding/binary"
	"math/bits"
)

// string validates the string whose opening quote is at src[i], by RFC 8259,
// section 7.
func (s *scanner) string(i int) (int, fault) {
	src := s.src
	i++
	for {
		i = s.plain(i)
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

// plain is skipPlain, and sees whether there is anything but ASCII.
func (s *scanner) plain(i int) int {
	src := s.src
	var seen uint64
	for len(src)-i >= 16 {
		b := src[i : i+16 : i+16]
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		seen |= x | y
		m, n := specials(x), specials(y)
		switch {
		case m != 0:
			s.seen |= seen
			return i + bits.TrailingZeros64(m)/8
		case n != 0:
			s.seen |= seen
			return i + 8 + bits.TrailingZeros64(n)/8
		}
		i += 16
	}
	for i < len(src) && src[i] >= 0x20 && src[i] != '"' && src[i] != '\\' {
		seen |= uint64(src[i])
		i++
	}
	s.seen |= seen
	return i
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
			if i+k >= len(src) || unhex(src[i+k]) < 0 {
				return i + k, faultHex
			}
		}
		s.foreign = s.foreign || !long(src[i:i+5])
		return i + 5, faultNone
	}
	return i, faultEscape
}
