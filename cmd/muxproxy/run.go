package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// process is what a command may touch of the process that it runs in.
type process struct {
	environ        []string // name=value
	stdout, stderr io.Writer
}

// subcommand is one of the program's. Its run defines the flags that it takes.
type subcommand struct {
	name, about string
	run         func(ctx context.Context, p process, flags *flag.FlagSet, args []string) error
}

// commands lists the subcommands in the order of the usage; the first is the
// default.
func commands() []subcommand {
	return []subcommand{
		{"serve", "run the daemon (the default)", serve},
		{"demo", "run a few rollouts against a built-in model and show what comes out", demo},
		{"check", "validate the configuration and print what is in effect", check},
		{"export", "write the traces in a state directory as lines of JSON", export},
		{"openapi", "print the description of the admin API", openapi},
		{"healthcheck", "ask the running daemon whether it is alive", healthcheck},
		{"version", "print the version", version},
		{"help", "print this, or the flags of a command: muxproxy help demo", help},
	}
}

// errReported is the error of a command that has said itself what went wrong.
var errReported = errors.New("reported")

// usageError says that the command line cannot be understood.
type usageError struct {
	command string // as typed before the arguments, "muxproxy demo"
	problem string
}

// Error is one line that says what is wrong and where to read on.
func (e *usageError) Error() string {
	return fmt.Sprintf("%s: %s; see 'muxproxy help%s'", e.command, e.problem, strings.TrimPrefix(e.command, "muxproxy"))
}

// run is the program: args are the arguments without the program's name,
// environ is the environment as name=value. It returns nil after an orderly
// end, which is begun by ctx; a *usageError or a *ConfigError where the user
// has to change something; errReported where nothing is left to say.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	c, args, err := find(args)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("muxproxy "+c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err = c.run(ctx, process{environ, stdout, stderr}, flags, args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, usageOf(flags))
	}
	return err
}

// find is the command that args begin with, and the arguments that are its own.
// The options that every program has are commands too, and the help of a
// command is what its own -h prints.
func find(args []string) (subcommand, []string, error) {
	all := commands()
	if len(args) == 0 {
		return all[0], nil, nil
	}
	name, rest := args[0], args[1:]
	switch {
	case name == "-h" || name == "-help" || name == "--help":
		name = "help"
	case name == "-version" || name == "--version":
		name = "version"
	case strings.HasPrefix(name, "-"):
		return all[0], args, nil
	}
	if name == "help" && len(rest) == 1 && !strings.HasPrefix(rest[0], "-") {
		name, rest = rest[0], []string{"-h"}
	}
	i := slices.IndexFunc(all, func(c subcommand) bool { return c.name == name })
	if i < 0 {
		return subcommand{}, nil, &usageError{"muxproxy", fmt.Sprintf("unknown command %q", name)}
	}
	return all[i], rest, nil
}

// help prints the usage of the program.
func help(_ context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	_, err := io.WriteString(p.stdout, usage())
	return err
}

// parse reads a command's flags; none of the commands takes other arguments.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return &usageError{flags.Name(), err.Error()}
}

func usage() string {
	var b strings.Builder
	b.WriteString("usage: muxproxy [command] [flags]\n\ncommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-12s %s\n", c.name, c.about)
	}
	b.WriteString("\nConfiguration is read from MUXPROXY_* variables; 'muxproxy check' prints them all.\n")
	return b.String()
}

func usageOf(flags *flag.FlagSet) string {
	var b strings.Builder
	b.WriteString(usage())
	options := false
	flags.VisitAll(func(*flag.Flag) { options = true })
	if options {
		fmt.Fprintf(&b, "\nflags of %s:\n", flags.Name())
		flags.SetOutput(&b)
		flags.PrintDefaults()
	}
	return b.String()
}
