package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Version names the weights an upstream serves: an integer or a string. Versions are compared with ==, the zero value is none.
type Version struct {
	text string // as JSON; integers in their shortest form
}

// VersionSpan holds the versions a turn began and ended under. They differ when weights were changed meanwhile.
type VersionSpan struct {
	Start, End Version
}

// IntVersion returns the version n.
func IntVersion(n int64) Version { return Version{strconv.FormatInt(n, 10)} }

// StringVersion returns the version s.
func StringVersion(s string) Version {
	text, err := json.Marshal(s)
	if err != nil { // a string has no form that JSON lacks
		return Version{}
	}
	return Version{string(text)}
}

// IsZero says that there is no version. It makes the json option omitzero work.
func (v Version) IsZero() bool { return v.text == "" }

// String returns an integer's digits or a string's contents, and "" for none.
func (v Version) String() string {
	if !v.isString() {
		return v.text
	}
	var s string
	if err := json.Unmarshal([]byte(v.text), &s); err != nil {
		return v.text
	}
	return s
}

// Compare orders integers by value, strings naturally ("step-9" before "step-10"), and integers before strings.
func (v Version) Compare(w Version) int {
	if v.isString() || w.isString() {
		return cmp.Or(compareBool(v.isString(), w.isString()), compareNatural(v.String(), w.String()))
	}
	negative := strings.HasPrefix(v.text, "-")
	if other := strings.HasPrefix(w.text, "-"); negative != other {
		return compareBool(other, negative)
	}
	order := compareDigits(v.text, w.text)
	if negative {
		return -order
	}
	return order
}

// MarshalJSON returns the integer, the string, or null for none.
func (v Version) MarshalJSON() ([]byte, error) {
	if v.IsZero() {
		return []byte("null"), nil
	}
	return []byte(v.text), nil
}

// UnmarshalJSON takes an integer of any size, a string, or null for none.
func (v *Version) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		*v = Version{}
		return nil
	}
	var s string
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("read version: %w", err)
		}
		*v = StringVersion(s)
		return nil
	}
	if !isInteger(data) {
		return errors.New("a version is an integer or a string")
	}
	*v = Version{string(data)}
	return nil
}

func (v Version) isString() bool { return strings.HasPrefix(v.text, `"`) }

func isInteger(data []byte) bool {
	digits := bytes.TrimPrefix(data, []byte("-"))
	if len(digits) == 0 || digits[0] == '0' && len(data) > 1 {
		return false
	}
	return !bytes.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
}

// compareNatural orders runs of digits by their value and everything else by its bytes. Strings that differ in leading
// zeros alone are ordered by their bytes too, so that only equal strings compare as equal.
func compareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := leadingDigits(x), leadingDigits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		if order := compareDigits(strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")); order != 0 {
			return order
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func leadingDigits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// compareDigits orders numbers of any size that have no leading zeros.
func compareDigits(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
