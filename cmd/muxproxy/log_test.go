package main_test

import (
	"bytes"
	"strings"
	"testing"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
)

func TestTheConsoleShowsWhatMattersFirst(t *testing.T) {
	var out bytes.Buffer
	log := main.NewLogger(main.Config{LogFormat: "console", LogLevel: "info"}, &out)
	log.Warn().Int64("bytes_in", 9).Float64("seconds", 0.123456789).Str("outcome", "client_error").
		Float64("overhead_seconds", 0.000041234).Str("session", "a").Str("route", "/v1/models").Int("status", 404).
		Str("error", "gone").Msg("call")
	const want = "WRN call error=gone status=404 route=/v1/models session=a outcome=client_error seconds=0.123 bytes_in=9 overhead_seconds=0.000041\n"
	if got := out.String(); !strings.HasSuffix(got, want) {
		t.Errorf("got  %q\nwant it to end with %q", got, want)
	}
}

func TestTheConsoleColoursLevelsAsZerologDoes(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	for noColor, want := range map[bool]string{false: "\x1b[33mWRN\x1b[0m", true: " WRN "} {
		var out bytes.Buffer
		if _, err := main.Console(&out, noColor).Write([]byte(`{"level":"warn","time":"2026-01-02T03:04:05Z","message":"m"}`)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("NoColor %t: got %q; want %q in it", noColor, out.String(), want)
		}
	}
}
