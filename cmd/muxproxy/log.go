package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
)

// newLogger writes JSON lines, or lines for a person when out is a terminal;
// LOG_FORMAT decides otherwise.
func newLogger(cfg Config, out io.Writer) zerolog.Logger {
	if cfg.LogFormat == "console" || cfg.LogFormat == "" && isTerminal(out) {
		out = console(out, cfg.NoColor || !isTerminal(out))
	}
	// Validated with the configuration: the zero value, debug, cannot be meant.
	level, _ := zerolog.ParseLevel(cfg.LogLevel)
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
}

// console writes lines for a person: what is looked for first comes first, and
// the other fields follow by name.
func console(out io.Writer, noColor bool) zerolog.ConsoleWriter {
	return zerolog.ConsoleWriter{
		Out: out, NoColor: noColor, TimeFormat: "15:04:05.000",
		FieldsOrder:   []string{"error", "status", "route", "session", "outcome", "reason", "seconds", "turn", "turns"},
		FormatPrepare: roundSeconds,
	}
}

// roundSeconds rounds times to milliseconds, and those under 10 ms to
// microseconds.
func roundSeconds(line map[string]any) error {
	for name, value := range line {
		n, ok := value.(json.Number)
		if !ok || name != "seconds" && !strings.HasSuffix(name, "_seconds") {
			continue
		}
		seconds, err := n.Float64()
		if err != nil {
			return err
		}
		precision := 1e3
		if seconds < 0.01 {
			precision = 1e6
		}
		line[name] = json.Number(strconv.FormatFloat(math.Round(seconds*precision)/precision, 'f', -1, 64))
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
