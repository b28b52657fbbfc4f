package rawjson

import (
	"encoding/binary"
	"math/bits"
)

// A block is 64 bytes of a string, looked at as eight words. Where a text has its
// newlines and quotes no processor can foresee, and a branch that it guessed wrong
// costs it as much as all of a block. So there are few branches here, and masks
// instead, of one bit for each byte.

const (
	lows   = 0x7f7f7f7f7f7f7f7f // all bits of every byte but the top one
	odds   = 0xaaaaaaaaaaaaaaaa // every second bit, the lowest not among them
	gather = 0x0002040810204081 // times the top bits of bytes is those bits, in the top byte
)

// blocks validates what is left of a string from src[i] on, as far as there are
// whole blocks of text, and by rest what follows. No block begins in an escape.
func (s *scanner) blocks(i int) (int, fault) {
	src := s.src
	for len(src)-i > 64 {
		b := (*[65]byte)(src[i:]) // with what the last byte may escape
		x0, x1 := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
		x2, x3 := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		x4, x5 := binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
		x6, x7 := binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
		if x := x0 | x1 | x2 | x3 | x4 | x5 | x6 | x7; x&highs != 0 {
			s.seen |= x
			x0, x1, x2, x3 = ascii(x0), ascii(x1), ascii(x2), ascii(x3)
			x4, x5, x6, x7 = ascii(x4), ascii(x5), ascii(x6), ascii(x7)
		}
		within := inside(x0) & inside(x1) & inside(x2) & inside(x3) & inside(x4) & inside(x5) & inside(x6) & inside(x7) & highs
		if within&solid(x0)&solid(x1)&solid(x2)&solid(x3)&solid(x4)&solid(x5)&solid(x6)&solid(x7) == highs {
			i += 64
			continue
		}

		// Of several backslashes in a row every second one is escaped: a carry
		// that runs through the row tells which, as in simdjson.
		backslashes := ^(mask(solid(x0)) | mask(solid(x1))<<8 | mask(solid(x2))<<16 | mask(solid(x3))<<24 |
			mask(solid(x4))<<32 | mask(solid(x5))<<40 | mask(solid(x6))<<48 | mask(solid(x7))<<56)
		pairs := (backslashes<<1 | odds) - backslashes ^ odds
		escapes, end := backslashes&pairs, 64
		if within != highs {
			ends := ^(mask(inside(x0)) | mask(inside(x1))<<8 | mask(inside(x2))<<16 | mask(inside(x3))<<24 |
				mask(inside(x4))<<32 | mask(inside(x5))<<40 | mask(inside(x6))<<48 | mask(inside(x7))<<56)
			escaped := backslashes ^ pairs
			end = bits.TrailingZeros64(ends &^ escaped)
			escapes &= 1<<end - 1
		}
		own := byte(1)
		for m := escapes; m != 0; m &= m - 1 {
			own &= ownShort[b[bits.TrailingZeros64(m)+1]]
		}
		if own == 0 && !s.escapes(i, escapes) {
			break
		}
		i += end + int(escapes>>63)
		if end < 64 {
			if src[i] == '"' {
				return i + 1, faultNone
			}
			break
		}
	}
	return s.rest(i)
}

// escapes validates the escapes of the block at src[i].
func (s *scanner) escapes(i int, escapes uint64) bool {
	for m := escapes; m != 0; m &= m - 1 {
		if _, f := s.escape(i + bits.TrailingZeros64(m) + 1); f != faultNone {
			return false
		}
	}
	return true
}

// inside sets the top bit of the bytes of x that neither end a string nor may not
// stand in one, which are '"' and control characters. x must be ASCII.
func inside(x uint64) uint64 { return (x ^ ones*('"'^0x20)) + ones*(0x80-0x21) }

// solid sets the top bit of the bytes of x that are no backslashes. x must be ASCII.
func solid(x uint64) uint64 { return (x ^ ones*'\\') + lows }

// ascii is x with DEL, which means nothing, in the place of what is not ASCII.
func ascii(x uint64) uint64 {
	wide := x & highs
	return (x | (wide - wide>>7)) & lows
}

// mask is the top bits of the bytes of x.
func mask(x uint64) uint64 { return x & highs * gather >> 56 }
