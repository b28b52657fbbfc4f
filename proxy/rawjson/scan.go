package rawjson

import "fmt"

// A fault is why scanning stopped. Scanning functions return it with the offset
// of the offending byte, and only the outermost caller makes an error of them,
// so that valid text costs no allocation.
type fault uint8

const (
	faultNone fault = iota
	faultValue
	faultKey
	faultColon
	faultObject
	faultArray
	faultDigit
	faultLiteral
	faultEscape
	faultHex
	faultString
	faultTrailing
	faultDepth
	faultMembers
)

// want is what the grammar asks for in the place of the fault.
func (f fault) want() string {
	switch f {
	case faultKey:
		return "a string as key"
	case faultColon:
		return "':'"
	case faultObject:
		return "',' or '}'"
	case faultArray:
		return "',' or ']'"
	case faultDigit:
		return "a digit"
	case faultLiteral:
		return "true, false or null"
	case faultEscape:
		return "one of \"\\/bfnrtu after a backslash"
	case faultHex:
		return "four hexadecimal digits after \\u"
	case faultString:
		return "control characters in strings to be escaped"
	case faultTrailing:
		return "nothing after the value"
	case faultNone, faultValue, faultDepth, faultMembers:
	}
	return "a value"
}

// at returns the fault at offset i of src as an error, nil for faultNone.
func (f fault) at(src []byte, i int) error {
	switch {
	case f == faultNone:
		return nil
	case f == faultDepth:
		return &SyntaxError{int64(i), fmt.Sprintf("nested deeper than %d levels", MaxDepth)}
	case f == faultMembers:
		return &SyntaxError{int64(i), fmt.Sprintf("more than %d members", MaxMembers)}
	case i >= len(src) && f == faultString:
		return &SyntaxError{int64(len(src)), "unexpected end of text in a string"}
	case i >= len(src):
		return &SyntaxError{int64(len(src)), "unexpected end of text, want " + f.want()}
	case src[i] >= 0x80:
		return &SyntaxError{int64(i), fmt.Sprintf("unexpected byte 0x%02x, want %s", src[i], f.want())}
	}
	return &SyntaxError{int64(i), fmt.Sprintf("unexpected %q, want %s", rune(src[i]), f.want())}
}

// nesting remembers which of the open values are objects, one bit a level. It
// is of fixed size, so that no input can grow the goroutine's stack.
type nesting [MaxDepth/64 + 1]uint64

func (n *nesting) set(depth int, object bool) {
	bit := uint64(1) << (depth % 64)
	if object {
		n[depth/64] |= bit
	} else {
		n[depth/64] &^= bit
	}
}

func (n *nesting) object(depth int) bool {
	return n[depth/64]>>(depth%64)&1 != 0
}

// A scanner validates a text and sees how its strings are spelled.
type scanner struct {
	src     []byte
	seen    uint64 // has the top bit of a byte set if there is anything but ASCII
	foreign bool   // there is a string that Quote would spell otherwise
	checked int    // see checkUTF8
}

// value validates the value that starts at src[i], inside depth others, and
// returns the offset after it.
func (s *scanner) value(i, depth int) (int, fault) {
	if i < len(s.src) && (s.src[i] == '{' || s.src[i] == '[') {
		return s.nested(i, depth)
	}
	return s.scalar(i)
}

// nested validates the object or array whose bracket is at src[i].
func (s *scanner) nested(i, depth int) (int, fault) { return s.open(i, depth, false) }

// behind validates the array inside depth others of which src[i] is behind an element.
func (s *scanner) behind(i, depth int) (int, fault) { return s.open(i, depth, true) }

func (s *scanner) open(i, depth int, inside bool) (int, fault) {
	src := s.src
	var open nesting
	base := depth
	if inside {
		depth++ // in an array, as open says
	}
values:
	for ; ; inside = false { // i is at the start of a value, or behind one
		var f fault
		if inside {
		} else if i < len(src) && (src[i] == '{' || src[i] == '[') {
			if depth == MaxDepth {
				return i, faultDepth
			}
			object := src[i] == '{'
			depth++
			open.set(depth, object)
			i = skipSpace(src, i+1)
			if i >= len(src) || src[i] != closing(object) {
				if object {
					i, f = s.key(i)
				}
				if f != faultNone {
					return i, f
				}
				continue
			}
		} else if i, f = s.scalar(i); f != faultNone {
			return i, f
		}

		for depth > base { // i is behind a value, or at the bracket of an empty one
			i = skipSpace(src, i)
			object := open.object(depth)
			switch {
			case i < len(src) && src[i] == closing(object):
				i++
				depth--
			case i < len(src) && src[i] == ',':
				i = skipSpace(src, i+1)
				if !object {
					i = scanDigits(src, i)
					continue values
				}
				if i, f = s.key(i); f != faultNone {
					return i, f
				}
				continue values
			case object:
				return i, faultObject
			default:
				return i, faultArray
			}
		}
		return i, faultNone
	}
}

func closing(object bool) byte {
	if object {
		return '}'
	}
	return ']'
}

func (s *scanner) scalar(i int) (int, fault) {
	src := s.src
	if i >= len(src) {
		return i, faultValue
	}
	switch src[i] {
	case '"':
		return s.string(i)
	case 't':
		return scanLiteral(src, i, "true")
	case 'f':
		return scanLiteral(src, i, "false")
	case 'n':
		return scanLiteral(src, i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return scanNumber(src, i)
	}
	return i, faultValue
}

// key validates the key and colon at src[i] and returns the offset of the value.
func (s *scanner) key(i int) (int, fault) {
	src := s.src
	if i >= len(src) || src[i] != '"' {
		return i, faultKey
	}
	i, f := s.string(i)
	if f != faultNone {
		return i, f
	}
	return scanColon(src, i)
}

func scanColon(src []byte, i int) (int, fault) {
	i = skipSpace(src, i)
	if i >= len(src) || src[i] != ':' {
		return i, faultColon
	}
	return skipSpace(src, i+1), faultNone
}

// scanEnd makes sure that nothing but white space follows src[i].
func scanEnd(src []byte, i int) (int, fault) {
	if i = skipSpace(src, i); i < len(src) {
		return i, faultTrailing
	}
	return i, faultNone
}

func scanLiteral(src []byte, i int, word string) (int, fault) {
	for k := range len(word) {
		if i+k >= len(src) || src[i+k] != word[k] {
			return i + k, faultLiteral
		}
	}
	return i + len(word), faultNone
}

// scanDigits goes over elements of an array that are nothing but digits, such as
// token ids, and returns where the first of other kind begins, or the last.
func scanDigits(src []byte, i int) int {
	for {
		end := skipDigits(src, i)
		if end == i || end >= len(src) || src[end] != ',' || src[i] == '0' && end > i+1 {
			return i
		}
		i = skipSpace(src, end+1)
	}
}

// scanNumber follows RFC 8259, section 6.
func scanNumber(src []byte, i int) (int, fault) {
	if src[i] == '-' {
		i++
	}
	if i < len(src) && src[i] == '0' {
		i++
	} else {
		n := skipDigits(src, i)
		if n == i {
			return i, faultDigit
		}
		i = n
	}
	if i < len(src) && src[i] == '.' {
		n := skipDigits(src, i+1)
		if n == i+1 {
			return n, faultDigit
		}
		i = n
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		n := skipDigits(src, i)
		if n == i {
			return i, faultDigit
		}
		i = n
	}
	return i, faultNone
}

func skipDigits(src []byte, i int) int {
	for i < len(src) && src[i]-'0' <= 9 {
		i++
	}
	return i
}
