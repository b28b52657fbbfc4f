package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/muxproxy/muxproxy/proxy/hook"
)

// ByteSize is a number of bytes. Its text is digits, with a unit or without:
// B, KiB, MiB, GiB, TiB, or KB, MB, GB, TB for powers of a thousand.
type ByteSize int64

type byteUnit struct {
	suffix string
	bytes  int64
}

// byteUnits lists the binary units from the largest to the smallest, then the
// decimal ones; "B" must be last, as it ends all the others.
func byteUnits() []byteUnit {
	return []byteUnit{
		{"TiB", 1 << 40},
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"TB", 1e12},
		{"GB", 1e9},
		{"MB", 1e6},
		{"KB", 1e3},
		{"B", 1},
	}
}

// UnmarshalText reads a size; units are case-insensitive.
func (b *ByteSize) UnmarshalText(text []byte) error {
	digits, scale := strings.TrimSpace(string(text)), int64(1)
	for _, u := range byteUnits() {
		if n := len(digits) - len(u.suffix); n > 0 && strings.EqualFold(digits[n:], u.suffix) {
			digits, scale = strings.TrimSpace(digits[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a size", text)
	}
	if n > math.MaxInt64/scale || n < math.MinInt64/scale {
		return fmt.Errorf("%q is too large", text)
	}
	*b = ByteSize(n * scale)
	return nil
}

// String is the size in the largest unit in which it is a whole number of at
// most four digits, and rounded to a tenth of a binary unit where there is none.
func (b ByteSize) String() string {
	n, units := int64(b), byteUnits()
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 && n/u.bytes < 10_000 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	for _, u := range units {
		if n >= u.bytes {
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// HookHosts are the hosts that hook URLs may name.
type HookHosts struct {
	hook.Hosts
	text string
}

// UnmarshalText reads a comma-separated list; see [hook.ParseHosts].
func (h *HookHosts) UnmarshalText(text []byte) (err error) {
	h.text = string(text)
	h.Hosts, err = hook.ParseHosts(h.text)
	return err
}

// String is the list as it was given.
func (h HookHosts) String() string { return h.text }

// URLs is a comma-separated list of URLs.
type URLs []string

// UnmarshalText splits the list; empty entries are refused.
func (u *URLs) UnmarshalText(text []byte) error {
	for entry := range strings.SplitSeq(string(text), ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			return errors.New("empty URL in the list")
		}
		*u = append(*u, entry)
	}
	return nil
}

// Headers are header names and values. Values may be credentials: they are
// never printed.
type Headers map[string]string

// UnmarshalText reads "name=value,name=value", or a JSON object of strings for
// values with commas in them.
func (h *Headers) UnmarshalText(text []byte) error {
	*h = make(Headers)
	if strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		if err := json.Unmarshal(text, (*map[string]string)(h)); err != nil {
			return errors.New("not a JSON object of strings")
		}
		return nil
	}
	for pair := range strings.SplitSeq(string(text), ",") {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return errors.New("not name=value")
		}
		(*h)[name] = strings.TrimSpace(value)
	}
	return nil
}
