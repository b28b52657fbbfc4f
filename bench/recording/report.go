package main

import (
	"fmt"
	"io"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// results are what is recorded of a run.
type results struct {
	Machine  rig.Machine
	Rounds   int
	Costs    []cost
	Groups   []group
	Recovery recovery
}

// A cost is what one way to record costs at one size.
type cost struct {
	Size, Mode string
	CPU        float64 // of the daemon, µs a request
	Rate       float64 // requests a second at full speed
	P50, P99   time.Duration
}

// A group is how turns that end at the same time are written.
type group struct {
	Mode           string
	Concurrent     int
	Rate           float64 // turns a second
	PerTransaction float64 // turns
	P50, P99       time.Duration
}

// A recovery is a restart after a kill.
type recovery struct {
	Sessions, Turns             int
	DiskMB, Seconds, ResidentMB float64
}

func medianCost(samples []cost) cost {
	m := samples[0]
	m.CPU, m.Rate = median(samples, func(c cost) float64 { return c.CPU }), median(samples, func(c cost) float64 { return c.Rate })
	m.P50, m.P99 = median(samples, func(c cost) time.Duration { return c.P50 }), median(samples, func(c cost) time.Duration { return c.P99 })
	return m
}

func medianGroup(samples []group) group {
	m := samples[0]
	m.Rate = median(samples, func(g group) float64 { return g.Rate })
	m.PerTransaction = median(samples, func(g group) float64 { return g.PerTransaction })
	m.P50, m.P99 = median(samples, func(g group) time.Duration { return g.P50 }), median(samples, func(g group) time.Duration { return g.P99 })
	return m
}

func median[S any, V ~int64 | ~float64](samples []S, of func(S) V) V {
	values := make([]V, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return rig.Median(values)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// table prints the results as docs/durability.md shows them.
func (r *results) table(out io.Writer) error {
	fmt.Fprintln(out, "| request | recorded | CPU µs | per second | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- | --- |")
	for _, c := range r.Costs {
		fmt.Fprintf(out, "| %s | %s | %.0f | %.0f | %.2f | %.2f |\n", c.Size, c.Mode, c.CPU, c.Rate, milliseconds(c.P50), milliseconds(c.P99))
	}
	fmt.Fprintln(out, "\n| durability | turns at a time | turns a second | turns a transaction | p50 ms | p99 ms |\n| --- | --- | --- | --- | --- | --- |")
	for _, g := range r.Groups {
		fmt.Fprintf(out, "| %s | %d | %.0f | %.1f | %.2f | %.2f |\n",
			g.Mode, g.Concurrent, g.Rate, g.PerTransaction, milliseconds(g.P50), milliseconds(g.P99))
	}
	_, err := fmt.Fprintf(out, "\n%d sessions of %d turns in all: %.0f MB on disk, serving %.2f s after the start, %.0f MB resident.\n",
		r.Recovery.Sessions, r.Recovery.Turns, r.Recovery.DiskMB, r.Recovery.Seconds, r.Recovery.ResidentMB)
	return err
}
