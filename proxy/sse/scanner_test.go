package sse_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/sse"
)

// split feeds stream to a Scanner in pieces of the given size and returns the
// events and what is left.
func split(stream string, size int) (events []string, rest string) {
	var (
		s   sse.Scanner
		buf []byte
	)
	for piece := range slices.Chunk([]byte(stream), size) {
		buf = append(buf, piece...)
		for n := s.Next(buf); n > 0; n = s.Next(buf) {
			events = append(events, string(buf[:n]))
			buf = buf[n:]
		}
	}
	return events, string(buf)
}

func TestEventsEndAtBlankLines(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		want         []string
		rest         string
	}{
		{"nothing", "", nil, ""},
		{"line feeds", "data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}, ""},
		{"both", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"data: a\r\n\r\n", "data: b\r\n\r\n"}, ""},
		{"carriage returns", "data: a\r\rdata: b\r\rx", []string{"data: a\r\r", "data: b\r\r"}, "x"},
		{"a carriage return at the end may be half of a line end", "data: a\r\r", nil, "data: a\r\r"},
		{"mixed", "a\n\r\nb\r\n\nc\r\n\rd\n\re\r\nf\r\n\r\n", []string{"a\n\r\n", "b\r\n\n", "c\r\n\r", "d\n\r", "e\r\nf\r\n\r\n"}, ""},
		{"several lines", "event: x\ndata: a\ndata: b\nid: 1\n\n", []string{"event: x\ndata: a\ndata: b\nid: 1\n\n"}, ""},
		{"comment", ": OPENROUTER PROCESSING\n\ndata: a\n\n", []string{": OPENROUTER PROCESSING\n\n", "data: a\n\n"}, ""},
		{"comment without a blank line", ": ping\ndata: a\n\n", []string{": ping\ndata: a\n\n"}, ""},
		{"only comments", ": a\n\n: b\n\n", []string{": a\n\n", ": b\n\n"}, ""},
		{"blank lines", "\n\r\n\rdata: a\n\n\n", []string{"\n", "\r\n", "\r", "data: a\n\n", "\n"}, ""},
		{"byte order mark", "\ufeffdata: a\n\n\ufeffdata: b\n\n", []string{"\ufeffdata: a\n\n", "\ufeffdata: b\n\n"}, ""},
		{"byte order mark before a blank line", "\ufeff\ndata: a\n\n", []string{"\ufeff\n", "data: a\n\n"}, ""},
		{"a byte order mark later is a line", "a\n\n\ufeff\nb\n\n", []string{"a\n\n", "\ufeff\nb\n\n"}, ""},
		{"begins like a byte order mark", "\xef\xbb\n\n", []string{"\xef\xbb\n\n"}, ""},
		{"a half-written event is none", "data: a\n\ndata: {\"cho", []string{"data: a\n\n"}, "data: {\"cho"},
		{"an event without its blank line is none", "data: [DONE]\n", nil, "data: [DONE]\n"},
		{"runes", "data: {\"a\":\"北😀\"}\n\n", []string{"data: {\"a\":\"北😀\"}\n\n"}, ""},
		{"control characters and nulls", "data: \x00\x0b\x0c\u0085\u2028\n\n", []string{"data: \x00\x0b\x0c\u0085\u2028\n\n"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for size := 1; size <= len(tt.stream)+1; size++ {
				events, rest := split(tt.stream, size)
				if !slices.Equal(events, tt.want) || rest != tt.rest {
					t.Errorf("in pieces of %d: %q and %q; want %q and %q", size, events, rest, tt.want, tt.rest)
				}
			}
		})
	}
}

func TestLineEndsAreFoundAtEveryAlignment(t *testing.T) {
	for n := range 40 {
		for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r", "\r\n\n"} {
			event := strings.Repeat("\x8a\x8d\x0b\x0c\x0e\x09", n)[:n] + "x" + end
			events, rest := split(event+"y", len(event)+1)
			if !slices.Equal(events, []string{event}) || rest != "y" {
				t.Errorf("%q became %q and %q", event, events, rest)
			}
		}
	}
}

func TestAnEventIsReturnedWithItsLastByte(t *testing.T) {
	for _, event := range []string{"data: a\n\n", "data: a\r\n\r\n"} {
		var s sse.Scanner
		for i := range len(event) {
			if n := s.Next([]byte(event[:i])); n != 0 {
				t.Errorf("Next(%q) = %d", event[:i], n)
			}
		}
		if n := s.Next([]byte(event)); n != len(event) {
			t.Errorf("Next(%q) = %d", event, n)
		}
	}
}

func TestNextWithoutNewBytesChangesNothing(t *testing.T) {
	var s sse.Scanner
	for _, buf := range []string{"", "data: a\r", "data: a\r", "data: a\r\n\r", "data: a\r\n\r"} {
		if n := s.Next([]byte(buf)); n != 0 {
			t.Errorf("Next(%q) = %d", buf, n)
		}
	}
	if n := s.Next([]byte("data: a\r\n\r\n")); n != 11 {
		t.Errorf("Next of the whole event = %d; want 11", n)
	}
}

// Bytes that were looked at become blank lines, which a second look would find.
func TestALongEventInPiecesIsScannedOnce(t *testing.T) {
	const piece = 4 << 10
	event := slices.Concat([]byte("data: "), bytes.Repeat([]byte{'A'}, 8<<20), []byte("\n\n"))
	size := len(event)
	var s sse.Scanner
	for end := piece; end < size; end += piece {
		if n := s.Next(event[:end]); n != 0 {
			t.Fatalf("an event of %d bytes after %d", n, end)
		}
		for i := end - piece; i < end; i++ {
			event[i] = '\n'
		}
	}
	if n := s.Next(event); n != size {
		t.Fatalf("an event of %d bytes; want %d", n, size)
	}
}
