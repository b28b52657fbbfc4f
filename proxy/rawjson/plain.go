package rawjson

import (
	"encoding/binary"
	"math/bits"
)

const (
	ones  = 0x0101010101010101 // 0x01 in every byte
	highs = 0x8080808080808080 // the top bit of every byte
)

// skipPlain returns the offset of the first quote, backslash or control
// character at or after i, or len(src). Eight bytes at a time: a conversation
// is mostly the inside of long strings.
func skipPlain(src []byte, i int) int {
	for i+8 <= len(src) {
		if m := specials(binary.LittleEndian.Uint64(src[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for i < len(src) && src[i] >= 0x20 && src[i] != '"' && src[i] != '\\' {
		i++
	}
	return i
}

// specials sets the top bit of bytes of x that end a run of plain characters in
// a string: below 0x20, '"' and '\\'. The lowest bit set is exact; bits above
// it may be false, because a subtraction borrows from the next byte.
// The method is "determine if a word has a byte less than n" of
// https://graphics.stanford.edu/~seander/bithacks.html; with a bit turned over '"' is
// next to the control characters, and one test does for both.
func specials(x uint64) uint64 {
	quote := x ^ ones*('"'^0x20)
	backslash := x ^ ones*'\\'
	return ((quote - ones*0x21) | (backslash - ones)) &^ x & highs
}
