// Command muxproxy is a daemon beside a trainer or evaluator: it gives every
// rollout a URL and a key for its model calls, sends them to the real model,
// holds the rollout's limits and records every turn.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
)

func main() {
	// The format belongs to the process: zerolog knows only one.
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"

	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go endOnSignals(signals, end)

	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	usage, isUsage := errors.AsType[*usageError](err)
	switch {
	case err == nil:
	case isUsage:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	case errors.Is(err, errReported):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "muxproxy:", err)
		os.Exit(1)
	}
}

// endOnSignals takes the first signal as the wish for an orderly end, and the
// second for an end at once. It runs as long as the process.
func endOnSignals(signals <-chan os.Signal, end context.CancelCauseFunc) {
	end(fmt.Errorf("signal: %s", <-signals))
	fmt.Fprintf(os.Stderr, "muxproxy: signal: %s again, ending at once\n", <-signals)
	os.Exit(1)
}
