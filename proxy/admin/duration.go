package admin

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Duration is a length of time in a request: a Go duration ("90s", "1h30m") or
// a number of seconds (90, 0.5). The zero value means that none was given.
//
// Decoding never fails on a bad value: it is kept, so that validation can say
// where in the body it is.
type Duration struct {
	set bool
	d   time.Duration
	err error
}

// Schema describes the two forms. It is an extension and not huma's OneOf,
// whose message would not say what is expected.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Extensions: map[string]any{"oneOf": []any{
			map[string]any{"type": "string", "description": "A Go duration.", "examples": []string{"90s", "1h30m"}},
			map[string]any{"type": "number", "description": "Seconds.", "minimum": 0},
		}},
		Examples: []any{"90s"},
	}
}

// UnmarshalJSON keeps what it finds; see problem.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	*d = Duration{}
	if string(raw) == "null" {
		return nil
	}
	d.set = true
	d.d, d.err = parseDuration(raw)
	return nil
}

// MarshalJSON gives seconds, or null when none was given.
func (d Duration) MarshalJSON() ([]byte, error) {
	if !d.set {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, d.d.Seconds(), 'f', -1, 64), nil
}

// IsZero reports that none was given, for omitzero.
func (d Duration) IsZero() bool { return !d.set }

// check says what is wrong with a duration that was found at this location.
func (d Duration) check(location string) []FieldError {
	if d.err == nil {
		return nil
	}
	return []FieldError{{Message: d.err.Error(), Location: location}}
}

// checkPositive is check for one that must not be 0 either.
func (d Duration) checkPositive(location string) []FieldError {
	if d.set && d.err == nil && d.d == 0 {
		return []FieldError{{Message: "expected a duration > 0", Location: location}}
	}
	return d.check(location)
}

// pointer is nil when none was given.
func (d Duration) pointer() *time.Duration {
	if !d.set {
		return nil
	}
	return &d.d
}

func durationOf(d time.Duration) Duration { return Duration{set: true, d: d} }

func parseDuration(raw []byte) (time.Duration, error) {
	expected := fmt.Errorf(`expected a duration such as "90s", or a number of seconds`)
	var d time.Duration
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return 0, expected
		}
		parsed, err := time.ParseDuration(s)
		if err != nil {
			return 0, expected
		}
		d = parsed
	default:
		seconds, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return 0, expected
		}
		if math.Abs(seconds) >= float64(math.MaxInt64)/float64(time.Second) {
			return 0, fmt.Errorf("expected a duration of less than 292 years")
		}
		d = time.Duration(seconds * float64(time.Second))
	}
	if d < 0 {
		return 0, fmt.Errorf("expected a duration >= 0")
	}
	return d, nil
}
