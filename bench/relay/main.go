// Command relay compares what it costs to relay model calls: through muxproxy
// with recording on, through nginx, through httputil.ReverseProxy as it comes
// and tuned, through a handler that only relays, and directly.
//
// All targets stand in front of the same scripted upstream and are measured in
// turn, in random order, in each of several rounds; muxproxy is measured twice
// as a control. The target runs on one core, load and upstream on the other.
// Ratios are taken inside a round and their medians reported, because the
// machine's speed drifts between rounds.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/muxproxy/muxproxy/bench/rig"
)

func main() { rig.Main("relay", run) }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	flags := rig.NewFlags("relay")
	rounds := flags.Int("rounds", 6, "how often each target is measured")
	quick := flags.Bool("quick", false, "a tenth of the load, to see that everything works")
	override := flags.Bool("override", false, "let sessions override the model of every request")
	only := flags.String("work", "", "measure this work alone, with the one that it is compared to")
	peers := flags.String("peers", "", "instead, measure beside all other proxies that are installed, those of registries in this folder")
	profiled := flags.String("profile", "", "instead, profile muxproxy at this work and write into the folder of -out")
	serve := flags.String("serve", "", "internal: be a target in front of this upstream")
	as := flags.String("as", "", "internal: which")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *serve != "" {
		return serveTarget(ctx, *as, *serve, out)
	}
	b := &bench{log: log, muxproxy: flags.Muxproxy, quick: *quick, only: *only, override: *override}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if *profiled != "" {
		return b.profile(ctx, *profiled, filepath.Dir(flags.Out))
	}
	if *peers != "" {
		if b.installed, err = filepath.Abs(*peers); err != nil {
			return err
		}
		return b.besidePeers(ctx, *rounds, flags.Out, out)
	}
	results, err := b.run(ctx, *rounds)
	if err != nil {
		return err
	}
	if err := rig.Save(flags.Out, results); err != nil {
		return err
	}
	return results.table(out)
}

// A bench is one run.
type bench struct {
	log            io.Writer
	self, muxproxy string
	quick          bool
	only           string // the work to measure, "" is all
	installed      string // where peers are that come from registries
	override       bool   // sessions have a model of their own
}

func (b *bench) run(ctx context.Context, rounds int) (*results, error) {
	var samples []sample
	if err := rig.PinLoad(); err != nil {
		return nil, err
	}
	for round := range rounds {
		targets := b.targets()
		rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		for _, w := range b.works() {
			for _, t := range targets {
				if w.base != "" && !t.sessions {
					continue
				}
				s, err := b.measure(ctx, t, w)
				if err != nil && !t.sessions && ctx.Err() == nil {
					// A call that another target breaks off must not cost the whole run.
					fmt.Fprintf(b.log, "round %d  %-21s %-19s again: %v\n", round+1, w.name, t.name, err)
					s, err = b.measure(ctx, t, w)
				}
				if err != nil {
					return nil, fmt.Errorf("%s through %s: %w", w.name, t.name, err)
				}
				s.round = round
				samples = append(samples, s)
				fmt.Fprintf(b.log, "round %d  %-21s %-19s %8.1f us  %8.0f/s\n", round+1, w.name, t.name, s.CPU, s.Rate)
			}
		}
	}
	if b.only != "" && b.only != nameOpen {
		return report(samples, nil, rounds), nil
	}
	streams, err := b.openStreams(ctx)
	return report(samples, streams, rounds), err
}

// works are those that are measured.
func (b *bench) works() []work {
	all := works(b.quick)
	if b.only == "" {
		return all
	}
	base := ""
	for _, w := range all {
		if w.name == b.only {
			base = w.base
		}
	}
	return slices.DeleteFunc(all, func(w work) bool { return w.name != b.only && w.name != base })
}

// openStreams measures memory, which does not drift, once.
func (b *bench) openStreams(ctx context.Context) ([]openStreams, error) {
	var all []openStreams
	for _, want := range openCounts(b.quick) {
		count, err := streamsUpTo(want)
		if err != nil {
			return nil, err
		}
		if count < want {
			fmt.Fprintf(b.log, "%d streams instead of %d: each takes two files, and more may not be open\n", count, want)
		}
		for _, t := range b.targets() {
			if t.name == nameDirect {
				continue
			}
			o, err := b.measureOpenStreams(ctx, t, count)
			for again := 0; again < 2 && errors.Is(err, errEnded); again++ {
				fmt.Fprintf(b.log, "%d open streams  %-19s again: %v\n", count, t.name, err)
				o, err = b.measureOpenStreams(ctx, t, count)
			}
			if err != nil {
				return nil, fmt.Errorf("%d open streams through %s: %w", count, t.name, err)
			}
			all = append(all, o)
			fmt.Fprintf(b.log, "%d open streams  %-19s %6.1f KiB each\n", count, t.name, o.KiBPerStream)
		}
	}
	return all, nil
}
