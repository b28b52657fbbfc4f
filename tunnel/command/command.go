// Package command makes servers reachable with any program that opens a tunnel
// and prints its public URL. The program is a child process, one a tunnel: its
// output is searched for the URL and read for ever after, because a program
// whose pipe is full stops; its whole process group ends with the tunnel.
//
// A program tells nothing about its tunnel but that it runs and what it
// prints, so the tunnel's health is known only to whoever probes its URL. When
// the program ends, the tunnel is lost: another start would have another URL.
//
// It works as described on Linux. Elsewhere a program outlives the daemon when
// that is killed.
package command

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// Options describe the program and how its output is to be understood. A line
// ends with a line feed or a carriage return, and is looked at without its
// terminal escapes; of one over 16 KiB the rest is not looked at.
type Options struct {
	// Args are the program and its arguments, taken as they stand and by no
	// shell. {addr}, {host} and {port} in an argument become the server's; at
	// least one of them must be there.
	Args []string
	// Env is the program's environment, NAME=value; nil is an empty one. The
	// daemon's own variables have secrets that are no business of the program.
	Env []string
	// URL matches the line with the public URL.
	URL *regexp.Regexp
	// Template makes the URL out of the match: "http://gw.example.net:$1". Empty,
	// it is the first group of the match or, when there is no group, all of it.
	Template string
	// Ready matches the line after which the URL works; nil is that of the URL.
	Ready *regexp.Regexp
	// Fatal, Quota and Limited match lines that end the start at once: with a
	// *tunnel.ConfigError, a *tunnel.QuotaError or a *tunnel.RateLimitError. A
	// program that ends without such a line may be tried again. Nil is no line.
	Fatal, Quota, Limited *regexp.Regexp
	// StartTimeout bounds the time until the URL has been printed and is ready;
	// zero is 30 seconds.
	StartTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL; zero is 5 seconds.
	StopGrace time.Duration
	// FirstProbe is how long the URL must not be asked for at first; zero is not
	// at all.
	FirstProbe time.Duration
	// Ledger gets the process groups, for [Driver.Run]; nil is none.
	Ledger *ledger.Ledger
	// Logger takes what Run does; the zero value is silent.
	Logger zerolog.Logger
}

// Driver starts programs. It is safe for concurrent use.
type Driver struct {
	o Options
}

// New checks the options; the program is looked for at every Open.
func New(o Options) (*Driver, error) {
	if len(o.Args) == 0 || o.Args[0] == "" {
		return nil, &tunnel.ConfigError{Err: errors.New("no program to run")}
	}
	if !slices.ContainsFunc(o.Args, func(a string) bool { return strings.Contains(a, "{addr}") || strings.Contains(a, "{port}") }) {
		return nil, &tunnel.ConfigError{Err: errors.New("no argument has {addr} or {port}, so the program cannot know where the server is")}
	}
	if o.URL == nil {
		return nil, &tunnel.ConfigError{Err: errors.New("no regular expression for the URL")}
	}
	if o.Template == "" {
		o.Template = "$0"
		if o.URL.NumSubexp() > 0 {
			o.Template = "$1"
		}
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, 30*time.Second)
	o.StopGrace = cmp.Or(o.StopGrace, 5*time.Second)
	return &Driver{o: o}, nil
}

// Name is "command".
func (d *Driver) Name() string { return "command" }

// FirstProbe is how long a new URL must not be asked for.
func (d *Driver) FirstProbe() time.Duration { return d.o.FirstProbe }
