package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// results is what results/relay.json holds.
type results struct {
	Machine rig.Machine   `json:"machine"`
	Rounds  int           `json:"rounds"`
	Runs    []runResult   `json:"runs"`
	Streams []openStreams `json:"streams"`
}

// runResult holds medians over the rounds. Costs and times are a request's, or
// for streams an event's.
type runResult struct {
	Target string  `json:"target"`
	Work   string  `json:"work"`
	CPU    float64 `json:"cpu_us"`
	// Ratio is the median of this target's CPU over the bare reverse proxy's
	// within each round.
	Ratio      float64 `json:"cpu_ratio"`
	RatioTuned float64 `json:"cpu_ratio_tuned"`
	RatioNginx float64 `json:"cpu_ratio_nginx"`
	Rate       float64 `json:"rps"`
	AddedP50   float64 `json:"added_p50_us"` // over the direct call of the round
	AddedP99   float64 `json:"added_p99_us"`
	// AddedP50Ratio is the median of this target's added p50 over the bare reverse
	// proxy's within each round.
	AddedP50Ratio float64 `json:"added_p50_ratio"`
	FirstEvent    float64 `json:"first_event_us,omitempty"`
	Bytes         float64 `json:"bytes"`
	Allocs        float64 `json:"allocs"`
	Connections   int64   `json:"upstream_connections"`
	MaxCallsOpen  int     `json:"concurrent_calls"`
}

func report(samples []sample, open []openStreams, rounds int) *results {
	r := &results{
		Machine: rig.ThisMachine(),
		Rounds:  rounds, Streams: open,
	}
	at := byKey(samples)
	for _, w := range works(false) {
		base := cmp.Or(w.base, w.name) // what others are measured at
		for _, t := range (&bench{}).targets() {
			if _, measured := at[key{t.name, w.name, 0}]; !measured {
				continue
			}
			median := func(f func(s sample, round int) float64) float64 {
				var values []float64
				for round := range rounds {
					values = append(values, f(at[key{t.name, w.name, round}], round))
				}
				return rig.Median(values)
			}
			over := func(other string) float64 {
				return median(func(s sample, round int) float64 { return s.CPU / at[key{other, base, round}].CPU })
			}
			direct := func(round int) sample { return at[key{nameDirect, base, round}] }
			added := func(s sample, round int) float64 { return micros(s.P50 - direct(round).P50) }
			run := runResult{
				Target: t.name, Work: w.name,
				CPU:      median(func(s sample, _ int) float64 { return s.CPU }),
				Rate:     median(func(s sample, _ int) float64 { return s.Rate }),
				AddedP50: median(added),
				AddedP99: median(func(s sample, i int) float64 { return micros(s.P99 - direct(i).P99) }),
				AddedP50Ratio: median(func(s sample, i int) float64 {
					return added(s, i) / max(added(at[key{nameReverse, base, i}], i), 1) // one that adds nothing is noise
				}),
				Bytes:  median(func(s sample, _ int) float64 { return s.Bytes }),
				Allocs: median(func(s sample, _ int) float64 { return s.Allocs }),
				Ratio:  over(nameReverse), RatioTuned: over(nameTuned), RatioNginx: over(nameNginx),
				MaxCallsOpen: workers,
			}
			if w.name == nameStream {
				run.FirstEvent = median(func(s sample, _ int) float64 { return micros(s.FirstEvent) })
				run.MaxCallsOpen = streams
			}
			for round := range rounds {
				run.Connections = max(run.Connections, at[key{t.name, w.name, round}].Connections)
			}
			r.Runs = append(r.Runs, run)
		}
	}
	return r
}

// A key says what a sample is of.
type key struct {
	target, work string
	round        int
}

func byKey(samples []sample) map[key]sample {
	at := make(map[key]sample, len(samples))
	for _, s := range samples {
		at[key{s.Target, s.Work, s.round}] = s
	}
	return at
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// table prints the results for people.
func (r *results) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d cores, %s; medians of %d rounds\n\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Rounds)
	fmt.Fprintln(w, "work\ttarget\tCPU us\t/ reverseproxy\t/ nginx\tper second\tadded p50 us\t/ reverseproxy\tadded p99 us\tbytes\tallocs\tconnections")
	for _, run := range r.Runs {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.2f\t%.2f\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.1f\t%d\n", run.Work, run.Target, run.CPU,
			run.Ratio, run.RatioNginx, run.Rate, run.AddedP50, run.AddedP50Ratio, run.AddedP99, run.Bytes, run.Allocs, run.Connections)
	}
	if len(r.Streams) == 0 {
		return w.Flush()
	}
	fmt.Fprintln(w, "\nopen streams\ttarget\tMB\tKiB each")
	for _, s := range r.Streams {
		if s.RSS > 0 {
			fmt.Fprintf(w, "%d\t%s\t%.0f\t%.1f\n", s.Open, s.Target, s.RSS, s.KiBPerStream)
		}
	}
	return w.Flush()
}
