// Command recording measures what it costs to record turns: kept in memory,
// written to the journal, and synced to the disk, beside calls that are passed
// through without being recorded; what group commit makes of many turns at a
// time; and how long a daemon takes to come back to its state directory.
//
// The daemon runs on one core, load and upstream on the other. Each request is
// a conversation of the given size of which the last message, a kilobyte, is
// new, as agents send them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

func main() { rig.Main("recording", run) }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	flags := rig.NewFlags("recording")
	rounds := flags.Int("rounds", 3, "how often everything is measured; medians are reported")
	quick := flags.Bool("quick", false, "a tenth of the load, to see that everything works")
	dir := flags.String("dir", "", "where state directories are made; by default the one for temporary files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := &bench{log: log, binary: flags.Muxproxy, dir: *dir, scale: 1}
	if *quick {
		b.scale = 10
	}
	if err := rig.PinLoad(); err != nil {
		return err
	}
	results := results{Machine: rig.ThisMachine(), Rounds: *rounds}
	if results.Costs, err = b.costs(ctx, *rounds); err != nil {
		return err
	}
	if results.Groups, err = b.groups(ctx, *rounds); err != nil {
		return err
	}
	if results.Recovery, err = b.recovery(ctx); err != nil {
		return err
	}
	if err := rig.Save(flags.Out, results); err != nil {
		return err
	}
	return results.table(out)
}

// A bench is one run.
type bench struct {
	log         io.Writer
	binary, dir string
	scale       int // divides the load
}

// The ways to record.
const (
	modeNone   = "none" // passed through
	modeMemory = "memory"
	modeWrite  = "write"
	modeFsync  = "fsync"
)

// A size is one kind of request.
type size struct {
	name  string
	bytes int
	calls int // at full speed
	paced int // for latency, at rate
	rate  int // a second
}

func sizes() []size {
	return []size{
		{"2 KB", 2 << 10, 8000, 1500, 300},
		{"64 KB", 64 << 10, 3000, 600, 120},
		{"1 MB", 1 << 20, 320, 100, 20},
	}
}

// costs measures every mode at every size, in turn.
func (b *bench) costs(ctx context.Context, rounds int) ([]cost, error) {
	var all []cost
	for _, s := range sizes() {
		samples := make(map[string][]cost)
		for range rounds {
			for _, mode := range []string{modeNone, modeMemory, modeWrite, modeFsync} {
				c, err := b.cost(ctx, mode, s)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", mode, s.name, err)
				}
				fmt.Fprintf(b.log, "%-6s %-6s %8.1f us  p99 %v\n", s.name, mode, c.CPU, c.P99)
				samples[mode] = append(samples[mode], c)
			}
		}
		for _, mode := range []string{modeNone, modeMemory, modeWrite, modeFsync} {
			all = append(all, medianCost(samples[mode]))
		}
	}
	return all, nil
}

const costConnections = 16

func (b *bench) cost(ctx context.Context, mode string, s size) (c cost, err error) {
	d, err := b.start(ctx, mode)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	path := "/v1/chat/completions"
	if mode == modeNone {
		path = "/v1/embeddings" // of which nothing is recorded
	}
	load, err := d.load(ctx, costConnections, path, s.bytes)
	if err != nil {
		return c, err
	}
	if _, err := load.drive(ctx, s.calls/b.scale/4, 0); err != nil { // to warm up
		return c, err
	}
	before, err := rig.CPUTime(d.PID())
	if err != nil {
		return c, err
	}
	started := time.Now()
	n := s.calls / b.scale
	if _, err := load.drive(ctx, n, 0); err != nil {
		return c, err
	}
	took := time.Since(started)
	after, err := rig.CPUTime(d.PID())
	if err != nil {
		return c, err
	}
	latencies, err := load.drive(ctx, s.paced/b.scale, s.rate)
	return cost{
		Size: s.name, Mode: mode, CPU: float64(after-before) / float64(time.Microsecond) / float64(n), Rate: float64(n) / took.Seconds(),
		P50: rig.Quantile(latencies, 0.5), P99: rig.Quantile(latencies, 0.99),
	}, err
}

// groups measures group commit: 2 KB turns, so and so many at a time.
func (b *bench) groups(ctx context.Context, rounds int) ([]group, error) {
	var all []group
	for _, mode := range []string{modeWrite, modeFsync} {
		for _, n := range []int{1, 32, 256} {
			var samples []group
			for range rounds {
				g, err := b.group(ctx, mode, n)
				if err != nil {
					return nil, fmt.Errorf("%d at a time, %s: %w", n, mode, err)
				}
				fmt.Fprintf(b.log, "%-6s %3d at a time %8.0f turns/s  %.1f a transaction\n", mode, n, g.Rate, g.PerTransaction)
				samples = append(samples, g)
			}
			all = append(all, medianGroup(samples))
		}
	}
	return all, nil
}

func (b *bench) group(ctx context.Context, mode string, concurrent int) (g group, err error) {
	d, err := b.start(ctx, mode)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	load, err := d.load(ctx, concurrent, "/v1/chat/completions", 2<<10)
	if err != nil {
		return g, err
	}
	n := max(1000, 40*concurrent) / b.scale
	if _, err := load.drive(ctx, n/4, 0); err != nil {
		return g, err
	}
	before, err := d.transactions(ctx)
	if err != nil {
		return g, err
	}
	started := time.Now()
	latencies, err := load.drive(ctx, n, 0)
	if err != nil {
		return g, err
	}
	took := time.Since(started)
	after, err := d.transactions(ctx)
	return group{
		Mode: mode, Concurrent: concurrent, Rate: float64(n) / took.Seconds(), PerTransaction: float64(n) / (after - before),
		P50: rig.Quantile(latencies, 0.5), P99: rig.Quantile(latencies, 0.99),
	}, err
}
