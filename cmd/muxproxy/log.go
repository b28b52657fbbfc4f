package main

import (
	"io"
	"os"

	"github.com/rs/zerolog"
)

// newLogger writes JSON lines, or lines for a person when out is a terminal;
// LOG_FORMAT decides otherwise.
func newLogger(cfg Config, out io.Writer) zerolog.Logger {
	if cfg.LogFormat == "console" || cfg.LogFormat == "" && isTerminal(out) {
		out = zerolog.ConsoleWriter{Out: out, NoColor: cfg.NoColor || !isTerminal(out), TimeFormat: "15:04:05.000"}
	}
	// Validated with the configuration: the zero value, debug, cannot be meant.
	level, _ := zerolog.ParseLevel(cfg.LogLevel)
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
