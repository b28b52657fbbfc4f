package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// results is what results/fairness.json holds. Latencies are in milliseconds.
type results struct {
	Machine rig.Machine `json:"machine"`
	Link    linkResult  `json:"link"`
	Frps    string      `json:"frps"`
	Rounds  int         `json:"rounds"`
	Runs    []runResult `json:"runs"`
}

type linkResult struct {
	Rate   int     `json:"bytes_per_second"`
	Delay  float64 `json:"one_way_ms"`
	Buffer int     `json:"buffer_bytes"`
}

// runResult is one load: medians over the rounds.
type runResult struct {
	ProxyType string       `json:"proxy_type"`
	Streams   int          `json:"streams"`
	Bulk      string       `json:"bulk"`
	Events    distribution `json:"event_ms"`
	Requests  distribution `json:"request_ms"`
	Ratio     ratio        `json:"p50_ratio"` // to the same without bulk, within a round
	BulkRate  float64      `json:"bulk_mb_per_s"`
}

type distribution struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

type ratio struct {
	Events   float64 `json:"events"`
	Requests float64 `json:"requests"`
}

// allowed is how many times the latency without bulk it may be with it.
func allowed(bulk string) float64 {
	switch bulk {
	case bulkUpload:
		return 3
	case bulkDownload:
		return 8
	default:
		return 1
	}
}

// report puts medians together.
func (b *bench) report(samples []labelled) *results {
	r := &results{
		Machine: rig.ThisMachine(),
		Link:    linkResult{b.link.Rate, b.link.Delay.Seconds() * 1e3, b.link.Buffer},
		Frps:    b.version,
		Rounds:  b.rounds,
	}
	for _, s := range samples {
		if s.round > 0 {
			continue
		}
		run := runResult{ProxyType: s.proxyType, Streams: s.streams, Bulk: s.bulk}
		rounds, quiet := b.of(samples, s, s.bulk), b.of(samples, s, bulkNone)
		run.summarise(rounds, quiet)
		r.Runs = append(r.Runs, run)
	}
	return r
}

// of are the samples like s, but with this bulk, one a round.
func (b *bench) of(samples []labelled, s labelled, bulk string) []measurement {
	found := make([]measurement, b.rounds)
	for _, other := range samples {
		if other.proxyType == s.proxyType && other.streams == s.streams && other.bulk == bulk {
			found[other.round] = measurement{
				percentiles(other.events), percentiles(other.requests),
				float64(other.sample.bulk) / 1e6 / other.window.Seconds(),
			}
		}
	}
	return found
}

// measurement is a sample in short.
type measurement struct {
	events, requests distribution
	bulkRate         float64
}

func (r *runResult) summarise(rounds, quiet []measurement) {
	events := func(m measurement) distribution { return m.events }
	requests := func(m measurement) distribution { return m.requests }
	r.Events, r.Requests = medians(rounds, events), medians(rounds, requests)
	var overEvents, overRequests, rates []float64
	for i, m := range rounds {
		overEvents = append(overEvents, m.events.P50/quiet[i].events.P50)
		overRequests = append(overRequests, m.requests.P50/quiet[i].requests.P50)
		rates = append(rates, m.bulkRate)
	}
	r.Ratio = ratio{rig.Median(overEvents), rig.Median(overRequests)}
	r.BulkRate = rig.Median(rates)
}

// medians over the rounds, percentile by percentile.
func medians(rounds []measurement, of func(measurement) distribution) distribution {
	var p50, p90, p99 []float64
	for _, m := range rounds {
		d := of(m)
		p50, p90, p99 = append(p50, d.P50), append(p90, d.P90), append(p99, d.P99)
	}
	return distribution{rig.Median(p50), rig.Median(p90), rig.Median(p99)}
}

// percentiles sorts the times.
func percentiles(times []time.Duration) distribution {
	at := func(share float64) float64 { return rig.Quantile(times, share).Seconds() * 1e3 }
	return distribution{at(0.5), at(0.9), at(0.99)}
}

// table prints the results for people.
func (r *results) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "%s, %d cores, %s, frps %s; medians of %d rounds\n\n", r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Frps, r.Rounds)
	_, _ = fmt.Fprintln(w, "type\tstreams\tbulk\tevent p50 ms\tp90\tratio\trequest p50 ms\tp90\tratio\tbulk MB/s")
	for _, run := range r.Runs {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%.1f\t%.1f\t%.2f\t%.1f\t%.1f\t%.2f\t%.1f\n", run.ProxyType, run.Streams, run.Bulk,
			run.Events.P50, run.Events.P90, run.Ratio.Events, run.Requests.P50, run.Requests.P90, run.Ratio.Requests, run.BulkRate)
	}
	return w.Flush()
}

// judge names the loads that missed what is aimed at.
func (r *results) judge() error {
	var missed []error
	for _, run := range r.Runs {
		if worst := max(run.Ratio.Events, run.Ratio.Requests); worst > allowed(run.Bulk) {
			missed = append(missed, fmt.Errorf("%s, %d streams, bulk %s: %.2f times the latency, at most %.0f are aimed at",
				run.ProxyType, run.Streams, run.Bulk, worst, allowed(run.Bulk)))
		}
	}
	return errors.Join(missed...)
}
