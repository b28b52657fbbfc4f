package rawjson

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// String decodes a string; ok is false for other values. See [AppendString].
func String(raw []byte) (s string, ok bool) {
	if Kind(raw) != '"' {
		return "", false
	}
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && skipPlain(raw, 1) == n && raw[n] == '"' && utf8.Valid(raw) {
		return string(raw[1:n]), true
	}
	return string(AppendString(make([]byte, 0, len(raw)), raw)), true
}

// Bool decodes true and false; ok is false for other values.
func Bool(raw []byte) (v, ok bool) {
	switch string(trim(raw)) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Int decodes a number that is an integer and fits an int64, however it is
// written: 12, 12.0 and 1.2e1 are all 12. The result is exact; no float64 is
// involved. ok is false for other values.
func Int(raw []byte) (n int64, ok bool) {
	if n, ok := digits(raw); ok {
		return n, true
	}
	raw = trim(raw)
	if Kind(raw) != '0' {
		return 0, false
	}
	if end, f := scanNumber(raw, 0); f != faultNone || end != len(raw) {
		return 0, false
	}
	number, negative := raw, raw[0] == '-'
	if negative {
		number = number[1:]
	}
	m, ok := magnitude(number)
	switch {
	case !ok:
		return 0, false
	case negative && m <= -math.MinInt64:
		return -int64(m), true
	case negative || m > math.MaxInt64:
		return 0, false
	}
	return int64(m), true
}

// digits is Int for what numbers mostly are: nothing but a few digits.
func digits(raw []byte) (n int64, ok bool) {
	if !fewDigits(raw) {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// fewDigits reports whether raw, if it has nothing but digits, is a number that
// fits an int64 whatever they are.
func fewDigits(raw []byte) bool {
	return len(raw) == 1 || len(raw) > 1 && len(raw) <= 18 && raw[0] != '0'
}

// magnitude returns the value of an unsigned JSON number. Zeros are held back
// until a digit follows that needs them, so that neither leading nor trailing
// ones count against the size.
func magnitude(number []byte) (uint64, bool) {
	exponent := 0
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		// Beyond an int is saturated by strconv, and beyond any number here.
		exponent, _ = strconv.Atoi(string(number[e+1:]))
		number = number[:e]
	}
	var m uint64
	zeros, fraction := 0, 0
	point := false
	for _, c := range number {
		if c == '.' {
			point = true
			continue
		}
		if point {
			fraction++
		}
		zeros++
		if c == '0' {
			continue
		}
		var ok bool
		if m, ok = shift(m, zeros); !ok {
			return 0, false
		}
		sum, carry := bits.Add64(m, uint64(c-'0'), 0)
		if carry != 0 {
			return 0, false
		}
		m, zeros = sum, 0
	}
	if m == 0 {
		return 0, true
	}
	// Compared before they are added, for the exponent may be any int.
	if places := zeros - fraction; exponent > 20-places || exponent < -places {
		return 0, false
	}
	return shift(m, zeros-fraction+exponent)
}

// shift multiplies m by a power of ten; ok is false if that overflows.
func shift(m uint64, places int) (uint64, bool) {
	for ; places > 0 && m > 0; places-- {
		hi, lo := bits.Mul64(m, 10)
		if hi != 0 {
			return 0, false
		}
		m = lo
	}
	return m, true
}

// trim cuts white space off, of which there is hardly ever any.
func trim(raw []byte) []byte {
	if len(raw) > 0 && raw[0] > ' ' && raw[len(raw)-1] > ' ' {
		return raw
	}
	return bytes.Trim(raw, " \t\r\n")
}
