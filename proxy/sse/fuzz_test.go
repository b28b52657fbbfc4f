package sse_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/sse"
)

func addStreams(f *testing.F) {
	f.Helper()
	for _, stream := range []string{
		"data: a\n\ndata:b\n\n", "event: x\r\ndata: {}\r\n\r\n", "\ufeffdata: a\r\rdata: b\r\r", ": c\n\n\n\r\n\r",
		"data: a\ndata: b\nid\n\ndata", "\xef\xbb\n\n", "data: 12345678\r\n\n\rdata\n\n", "a\n\n\ufeff\nb\n\n",
	} {
		f.Add([]byte(stream), uint8(3), uint8(7))
	}
}

// lines splits at \r\n, \n and \r, a byte order mark at the start removed, with
// the least code that can be right.
func lines(event []byte) []string {
	s := strings.TrimPrefix(string(event), "\ufeff")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Split(strings.ReplaceAll(s, "\r", "\n"), "\n")
}

// read interprets an event as the standard does: the data lines' values and the
// last event field's, and whether there is any field.
func read(event []byte) (data, kinds []string, fields bool) {
	for _, l := range lines(event) {
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		fields = fields || name != ""
		switch name {
		case "data":
			data = append(data, value)
		case "event":
			kinds = append(kinds, value)
		}
	}
	return data, kinds, fields
}

func FuzzEventsAreTheStreamHoweverItIsCut(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, stream []byte, first, second uint8) {
		var (
			s     sse.Scanner
			buf   []byte
			cut   []string
			sizes = [2]int{int(first) + 1, int(second) + 1}
		)
		for i, rest := 0, stream; len(rest) > 0; i++ {
			n := min(sizes[i%2], len(rest))
			buf = append(buf, rest[:n]...)
			rest = rest[n:]
			for n := s.Next(buf); n > 0; n = s.Next(buf) {
				cut = append(cut, string(buf[:n]))
				buf = buf[n:]
			}
		}
		whole, rest := split(string(stream), len(stream)+1)
		if !slices.Equal(cut, whole) || string(buf) != rest {
			t.Fatalf("in pieces %q and %q; at once %q and %q", cut, buf, whole, rest)
		}
		if joined := strings.Join(whole, "") + rest; joined != string(stream) {
			t.Fatalf("events joined are %q; want %q", joined, stream)
		}
		// Exactly the last line of every event is blank. Only the first event
		// of a stream loses its byte order mark.
		for i, event := range whole {
			if i > 0 && strings.HasPrefix(event, "\ufeff") {
				event = "x" + event
			}
			l := lines([]byte(event))
			if blank := slices.Index(l, ""); blank != len(l)-2 || l[len(l)-1] != "" {
				t.Fatalf("event %q has lines %q", event, l)
			}
		}
	})
}

func FuzzFieldsAgreeWithANaiveReader(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, event []byte, _, _ uint8) {
		source := bytes.Clone(event)
		data, kinds, fields := read(event)
		wantData, wantType := none, none
		if data != nil {
			wantData = strings.Join(data, "\n")
		}
		if kinds != nil {
			wantType = kinds[len(kinds)-1]
		}
		if got := text(sse.Data(event)); got != wantData {
			t.Errorf("Data(%q) = %q; want %q", event, got, wantData)
		}
		if got := text(sse.Type(event)); got != wantType {
			t.Errorf("Type(%q) = %q; want %q", event, got, wantType)
		}
		if got := sse.IsComment(event); got == fields {
			t.Errorf("IsComment(%q) = %v", event, got)
		}
		if !bytes.Equal(event, source) {
			t.Errorf("%q became %q", source, event)
		}
	})
}

func FuzzReplacedDataIsReadBack(f *testing.F) {
	f.Add([]byte("event: x\ndata: a\n\n"), []byte(`{"b":1}`))
	f.Add([]byte("data: a\r\nid: 1\r\ndata\r\n\r\n"), []byte("a\nb"))
	f.Add([]byte("data"), []byte("\r\n"))
	f.Add([]byte("data:a"), []byte(" b"))
	f.Fuzz(func(t *testing.T, event, data []byte) {
		got := sse.ReplaceData(nil, event, data)
		before, kinds, fields := read(event)
		after, kindsAfter, fieldsAfter := read(got)
		if before == nil {
			if !bytes.Equal(got, event) {
				t.Fatalf("%q without data became %q", event, got)
			}
			return
		}
		if !slices.Equal(kinds, kindsAfter) || fields != fieldsAfter {
			t.Fatalf("%q became %q", event, got)
		}
		want := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
		if joined := strings.Join(after, "\n"); joined != want {
			t.Fatalf("%q with %q became %q, which reads %q", event, data, got, joined)
		}
		if len(before) == 1 && bytes.Equal(sse.Data(event), data) && !bytes.Equal(got, event) {
			t.Fatalf("the same data made %q of %q", got, event)
		}
	})
}
