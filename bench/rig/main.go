// Package rig is what the benchmarks have in common: what they are told, the
// processes that they measure and the cores that these run on, the admin API of
// the daemon, and the machine that the results are of.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

// Main is the main of a benchmark: run gets the arguments, a writer for results
// and one for what goes on, and ends early when it is interrupted.
func Main(name string, run func(ctx context.Context, args []string, out, log io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Flags are a benchmark's, with those that all have.
type Flags struct {
	*flag.FlagSet
	// Muxproxy is the daemon's binary, an absolute path after Parse.
	Muxproxy string
	// Out is the file that the results go into.
	Out string
}

// NewFlags are those that all benchmarks have.
func NewFlags(name string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.StringVar(&f.Muxproxy, "muxproxy", "muxproxy", "the daemon's binary")
	f.StringVar(&f.Out, "out", "results/"+name+".json", "where the results go")
	return f
}

// Parse reads the arguments.
func (f *Flags) Parse(args []string) (err error) {
	if err := f.FlagSet.Parse(args); err != nil {
		return err
	}
	f.Muxproxy, err = filepath.Abs(f.Muxproxy)
	return err
}

// Save writes results into a file.
func Save(file string, results any) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // results are for everybody
}
