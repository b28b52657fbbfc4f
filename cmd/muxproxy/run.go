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

// command is a subcommand. Its run defines the flags that it takes.
type command struct {
	name, about string
	run         func(ctx context.Context, p process, flags *flag.FlagSet, args []string) error
}

// commands lists the subcommands in the order of the usage; the first is the
// default.
func commands() []command {
	return []command{
		{"serve", "run the daemon (the default)", serve},
		{"demo", "run a few rollouts against a built-in model and show what comes out", demo},
		{"check", "validate the configuration and print what is in effect", check},
		{"openapi", "print the description of the admin API", openapi},
		{"healthcheck", "ask the running daemon whether it is alive", healthcheck},
		{"version", "print the version", version},
	}
}

// usageError says that the command line cannot be understood. Its text is a
// sentence and the usage, with a newline at the end.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// run is the program: args are the arguments without the program's name,
// environ is the environment as name=value. It returns nil after an orderly
// end, which is begun by ctx; a *usageError or a *ConfigError where the user
// has to change something.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	all := commands()
	c := all[0]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
		if i < 0 {
			return &usageError{fmt.Sprintf("muxproxy: unknown command %q\n\n%s", args[0], usage())}
		}
		c, args = all[i], args[1:]
	}
	flags := flag.NewFlagSet("muxproxy "+c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err := c.run(ctx, process{environ, stdout, stderr}, flags, args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, usageOf(flags))
	}
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
	return &usageError{fmt.Sprintf("%s: %v\n\n%s", flags.Name(), err, usageOf(flags))}
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
