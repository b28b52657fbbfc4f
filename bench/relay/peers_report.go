package main

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// peerResults is what results/peers.json holds.
type peerResults struct {
	Machine rig.Machine `json:"machine"`
	Memory  float64     `json:"memory_gib"`
	Rounds  int         `json:"rounds"`
	Peers   []peerInfo  `json:"peers"`
	LeftOut []leftOut   `json:"left_out"`
	Runs    []peerRun   `json:"runs"`
}

type peerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Does    string `json:"does"` // to each request
}

// leftOut is a target, or one work of it, that could not be measured.
type leftOut struct {
	Name   string `json:"name"`
	Work   string `json:"work,omitempty"` // "" is all
	Reason string `json:"reason"`
}

// peerRun holds medians over the rounds. Costs and times are a request's, or
// for streams an event's.
type peerRun struct {
	Target   string  `json:"target"`
	Work     string  `json:"work"`
	CPU      float64 `json:"cpu_us"`
	Ratio    float64 `json:"cpu_ratio"` // median of this target's CPU over muxproxy's within each round
	Rate     float64 `json:"rps"`
	AddedP50 float64 `json:"added_p50_us,omitempty"` // over the direct call of the round; 0 is not known
	Calls    int     `json:"calls,omitempty"`
	Paced    int     `json:"paced_rps,omitempty"` // at which the latency was taken
	Streams  int     `json:"streams,omitempty"`
}

// fill makes runs of what was measured.
func (r *peerResults) fill(samples []sample, fitted fittedWorks) {
	r.Machine = rig.ThisMachine()
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		r.Memory = float64(info.Totalram) * float64(info.Unit) / (1 << 30)
	}
	at := byKey(samples)
	r.Runs = nil
	for _, p := range r.Peers {
		for _, all := range peerWorks(false) {
			if _, measured := at[key{p.Name, all.name, r.Rounds - 1}]; !measured {
				continue // or not in every round
			}
			over := func(f func(s, mux, direct sample) float64) float64 {
				var values []float64
				for round := range r.Rounds {
					of := func(target string) sample { return at[key{target, all.name, round}] }
					values = append(values, f(of(p.Name), of(nameMux), of(nameDirect)))
				}
				return rig.Median(values)
			}
			w := fitted[p.Name][all.name]
			r.Runs = append(r.Runs, peerRun{
				Target: p.Name, Work: all.name,
				CPU:      over(func(s, _, _ sample) float64 { return s.CPU }),
				Ratio:    over(func(s, mux, _ sample) float64 { return s.CPU / mux.CPU }),
				Rate:     over(func(s, _, _ sample) float64 { return s.Rate }),
				AddedP50: over(addedP50),
				Calls:    w.calls, Paced: w.rate, Streams: w.streams,
			})
		}
	}
}

// addedP50 is 0 where a target takes the time out of events that they were sent at.
func addedP50(s, _, direct sample) float64 {
	if s.P50 == 0 {
		return 0
	}
	return micros(s.P50 - direct.P50)
}

// table prints the results as docs/benchmarks.md shows them.
func (r *peerResults) table(out io.Writer) error {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s, %d cores, %.0f GiB, %s, %s; medians of %d rounds.\n\n",
		r.Machine.CPU, r.Machine.Cores, r.Memory, r.Machine.Go, r.Machine.Date, r.Rounds)
	fmt.Fprintln(w, "| target | version | what it does to a request | 2 KB | 64 KB | 1 MB | event |")
	fmt.Fprintln(w, "| --- | --- | --- | ---: | ---: | ---: | ---: |")
	for _, p := range r.Peers {
		fmt.Fprintf(w, "| %s | %s | %s |%s\n", p.Name, p.Version, p.Does,
			r.cells(p.Name, func(run peerRun) string { return fmt.Sprintf("%s (%s)", figure(run.CPU), figure(run.Ratio)) }))
	}
	fmt.Fprintln(w, "\n| target | 2 KB: a second, added ms | 64 KB | 1 MB | event: added ms (streams) |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: |")
	for _, p := range r.Peers {
		fmt.Fprintf(w, "| %s |%s\n", p.Name, r.cells(p.Name, func(run peerRun) string {
			added := "?"
			if run.AddedP50 != 0 {
				added = figure(run.AddedP50 / 1000)
			}
			if run.Streams > 0 {
				return fmt.Sprintf("%s (%d)", added, run.Streams)
			}
			return fmt.Sprintf("%s, %s", figure(run.Rate), added)
		}))
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(w, "\nNot measured: %s: %s.\n", strings.TrimSpace(l.Name+" "+l.Work), l.Reason)
	}
	_, err := io.WriteString(out, w.String())
	return err
}

// cells are the columns of a target, one for each work.
func (r *peerResults) cells(target string, show func(run peerRun) string) string {
	var cells strings.Builder
	for _, w := range peerWorks(false) {
		text := ""
		for _, run := range r.Runs {
			if run.Target == target && run.Work == w.name {
				text = show(run)
			}
		}
		fmt.Fprintf(&cells, " %s |", text)
	}
	return cells.String()
}

// figure is a number with about three digits.
func figure(f float64) string {
	switch {
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}
