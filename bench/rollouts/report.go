package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// results is what results/rollouts.json holds.
type results struct {
	Scale   float64     `json:"scale"`
	Machine rig.Machine `json:"machine"`
	Runs    []runResult `json:"runs"`
}

// runResult is one run. Times are in seconds as measured, scaled ones too.
type runResult struct {
	N         int       `json:"n"`
	Multiplex int       `json:"multiplex"`
	Tunnels   int       `json:"tunnels"`
	Errors    int       `json:"errors"`
	Duration  quantiles `json:"duration_s"`
	Overhead  quantiles `json:"overhead_s"`
	Durations []float64 `json:"durations_s"`
	Overheads []float64 `json:"overheads_s"`
}

type quantiles struct {
	P10 float64 `json:"p10"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
}

func quantilesOf(values []float64) quantiles {
	sorted := slices.Sorted(slices.Values(values))
	return quantiles{millis(quantile(sorted, 0.1)), millis(quantile(sorted, 0.5)), millis(quantile(sorted, 0.9))}
}

// quantile interpolates between the two values next to it.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// print writes the table, as Markdown, and which of the aims were met.
func (r *results) print(out io.Writer, d drawn) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "%s, %d cores, %s, scale %g\n\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Scale)
	fmt.Fprintln(w, "| rollouts\t| multiplex\t| tunnels\t| errors\t| duration p10 / p50 / p90, s\t| overhead p10 / p50 / p90, s\t|")
	fmt.Fprintln(w, "| ---:\t| ---:\t| ---:\t| ---:\t| ---\t| ---\t|")
	for _, run := range r.Runs {
		fmt.Fprintf(w, "| %d\t| %d\t| %d\t| %d\t| %s\t| %s\t|\n", run.N, run.Multiplex, run.Tunnels, run.Errors, run.Duration, run.Overhead)
	}
	fmt.Fprintln(w)
	for _, aim := range r.aims(d) {
		fmt.Fprintln(w, aim)
	}
	return w.Flush()
}

// String is the three of them.
func (q quantiles) String() string { return fmt.Sprintf("%.2f / %.2f / %.2f", q.P10, q.P50, q.P90) }

// find is the run of that size, if there was one.
func (r *results) find(n, multiplex int) (runResult, bool) {
	at := slices.IndexFunc(r.Runs, func(run runResult) bool { return run.N == n && run.Multiplex == multiplex })
	if at < 0 {
		return runResult{}, false
	}
	return r.Runs[at], true
}

// aims says of each aim whether it was met, as far as its runs were made.
func (r *results) aims(d drawn) []string {
	var all []string
	say := func(met bool, format string, values ...any) {
		verdict := "MISSED"
		if met {
			verdict = "met"
		}
		all = append(all, fmt.Sprintf("%-7s", verdict)+fmt.Sprintf(format, values...))
	}
	few, ok := r.find(32, 32)
	for _, flat := range []struct {
		n    int
		most float64 // per cent
	}{{256, 8}, {1024, 16}} {
		if many, both := r.find(flat.n, 32); both && ok {
			p50, p90 := 100*(many.Duration.P50/few.Duration.P50-1), 100*(many.Duration.P90/few.Duration.P90-1)
			say(max(p50, p90) <= flat.most, "multiplex 32, n %d: duration p50 %+.1f %%, p90 %+.1f %% of n 32; at most %g %%", flat.n, p50, p90, flat.most)
		}
	}
	errors := 0
	for _, run := range r.Runs {
		errors += run.Errors
		if run.Multiplex > 1 {
			bound := r.overheadBound(run, d)
			say(run.Overhead.P90 <= bound, "multiplex %d, n %d: overhead p90 %.2f s; at most %.2f s", run.Multiplex, run.N, run.Overhead.P90, bound)
		}
		if want := (run.N + run.Multiplex - 1) / run.Multiplex; run.Tunnels != want {
			say(false, "multiplex %d, n %d: %d tunnels; %d are needed", run.Multiplex, run.N, run.Tunnels, want)
		}
		if other, both := r.find(run.N, 32); both && run.Multiplex == 64 {
			say(run.Duration.P50 <= other.Duration.P50*1.01 && run.Duration.P90 <= other.Duration.P90*1.01,
				"multiplex 64, n %d: duration p50 %.2f s, p90 %.2f s; with 32 %.2f s, %.2f s",
				run.N, run.Duration.P50, run.Duration.P90, other.Duration.P50, other.Duration.P90)
		}
	}
	baseline, ok := r.find(256, 1)
	if shared, both := r.find(256, 32); both && ok {
		ratio := baseline.Overhead.P50 / shared.Overhead.P50
		say(ratio >= 8, "n 256: the baseline's overhead p50 is %.1f times that of multiplex 32; at least 8", ratio)
	}
	say(errors == 0, "%d errors", errors)
	return all
}

// overheadBound is one set-up, the spacings of all tunnels and half a second.
func (r *results) overheadBound(run runResult, d drawn) float64 {
	setUp := slices.Max(d.Creations[:max(run.Tunnels, 1)]) / r.Scale
	spacing := 60 / (ratePerMinute * r.Scale)
	return setUp + math.Ceil(float64(run.N)/float64(run.Multiplex))*spacing + 0.5
}
