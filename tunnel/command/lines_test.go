package command_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxproxy/muxproxy/tunnel/command"
)

func TestLinesAreWhatAPersonWouldSee(t *testing.T) {
	long := strings.Repeat("x", command.MaxLine)
	for _, c := range []struct {
		name, printed string
		want          []string
	}{
		{"plain", "one\ntwo\n", []string{"one", "two"}},
		{"no end", "one\ntwo", []string{"one", "two"}},
		{"progress", "10 %\r20 %\r\ndone\n", []string{"10 %", "20 %", "done"}},
		{"empty", "\n \t\n\r\n", nil},
		{"colours", "\x1b[1;32mINF\x1b[0m \x1b[38;5;12mhttps://a.example\x1b[m\n", []string{"INF https://a.example"}},
		{"title", "\x1b]0;ngrok\x07up\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", []string{"up", "link"}},
		{"screen", "\x1b[?1049h\x1b[H\x1b(Bready\x1b7\x1b>\n", []string{"ready"}},
		{"controls", "a\x00b\x08c\x7f\n", []string{"abc"}},
		{"cut escape", "up\x1b[\n", []string{"up["}},
		{"too long", long + "rest\nnext\n", []string{long, "next"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := command.Lines([]byte(c.printed)); !slices.Equal(got, c.want) {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x1b[1mc\x1b[0m"), 3)
	f.Add([]byte("\x1b]0;title"), 1)
	f.Add(bytes.Repeat([]byte("\xff\x1b["), 9000), 4096)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		whole := command.Lines(text)
		at = max(0, min(at, len(text)))
		if pieces := command.Lines(text[:at], text[at:]); !slices.Equal(pieces, whole) {
			t.Errorf("in two pieces: got %q; want %q", pieces, whole)
		}
		for _, line := range whole {
			switch {
			case line == "", strings.ContainsAny(line, "\r\n\x00"):
				t.Errorf("got line %q", line)
			case len(line) > 3*command.MaxLine, utf8.ValidString(string(text)) && len(line) > command.MaxLine:
				t.Errorf("got a line of %d bytes; want at most %d", len(line), command.MaxLine)
			}
		}
	})
}
