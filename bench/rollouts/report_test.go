package main_test

import (
	"reflect"
	"strings"
	"testing"

	rollouts "github.com/muxproxy/muxproxy/bench/rollouts"
)

func TestTheRecordedTimesAreTheDrawnOnes(t *testing.T) {
	recorded, err := rollouts.RecordedTimes()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(recorded, rollouts.DrawTimes()) {
		t.Error("drawn.json is not what is drawn: run rollouts -draw")
	}
	for n := 32; n <= len(recorded.Generations); n *= 2 {
		q := rollouts.QuantilesOf(recorded.Generations[:n])
		if q.P10 < 15.5 || q.P10 > 16.5 || q.P50 < 18.5 || q.P50 > 19.5 || q.P90 < 25 || q.P90 > 27 {
			t.Errorf("of %d generations: got %v; want near 16 / 19 / 26", n, q)
		}
	}
	for _, took := range recorded.Creations {
		if took < 0.2 || took > 1.5 {
			t.Errorf("a creation takes %g s; want 0.2 to 1.5", took)
		}
	}
}

func TestAimsAreJudged(t *testing.T) {
	run := func(n, multiplex, tunnels int, p50, overhead float64) rollouts.RunResult {
		return rollouts.RunResult{
			N: n, Multiplex: multiplex, Tunnels: tunnels,
			Duration: rollouts.Quantiles{P50: p50, P90: p50}, Overhead: rollouts.Quantiles{P50: overhead, P90: overhead},
		}
	}
	for _, c := range []struct {
		name string
		runs []rollouts.RunResult
		want []string
	}{
		{"flat", []rollouts.RunResult{run(32, 32, 1, 10, 0), run(256, 32, 8, 10.7, 1)}, []string{"met", "met", "met", "met"}},
		{"steep", []rollouts.RunResult{run(32, 32, 1, 10, 0), run(256, 32, 8, 10.9, 1)}, []string{"MISSED", "met", "met", "met"}},
		{"late", []rollouts.RunResult{run(32, 32, 1, 10, 2)}, []string{"MISSED", "met"}},
		{"baseline", []rollouts.RunResult{run(256, 1, 256, 30, 9), run(256, 32, 8, 20, 1)}, []string{"met", "met", "met"}},
		{"baseline too good", []rollouts.RunResult{run(256, 1, 256, 30, 7), run(256, 32, 8, 20, 1)}, []string{"met", "MISSED", "met"}},
		{"too many tunnels", []rollouts.RunResult{run(256, 32, 9, 20, 1)}, []string{"met", "MISSED", "met"}},
		{"64 worse than 32", []rollouts.RunResult{run(64, 32, 2, 20, 1), run(64, 64, 1, 21, 1)}, []string{"met", "met", "MISSED", "met"}},
	} {
		d := rollouts.Drawn{Creations: make([]float64, 1024)}
		d.Creations[0] = 0.5
		var got []string
		for _, aim := range (&rollouts.Results{Scale: 1, Runs: c.runs}).Aims(d) {
			verdict, _, _ := strings.Cut(aim, " ")
			got = append(got, verdict)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v; want %v", c.name, got, c.want)
		}
	}
}
