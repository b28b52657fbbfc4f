package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

//go:embed drawn.json
var recorded []byte

// drawn are the times of all runs: the i-th rollout's model call and the i-th
// tunnel's creation take the same time in each of them.
type drawn struct {
	Generations []float64 `json:"generations_s"`
	Creations   []float64 `json:"creations_s"`
}

func recordedTimes() (d drawn, err error) {
	if err = json.Unmarshal(recorded, &d); err != nil {
		return d, fmt.Errorf("read drawn.json: %w", err)
	}
	return d, nil
}

const (
	rollouts = 1024 // of the largest run
	block    = 32   // rollouts, the smallest run
	seed     = 1
)

// drawTimes draws the times.
func drawTimes() drawn {
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // to be repeatable
	return drawn{Generations: draw(random, generation), Creations: draw(random, creation)}
}

// draw draws from the distribution with this quantile function. Of each 32 in a
// row one falls into each 32nd of the distribution, in random order, so that
// runs of different sizes differ by what they are to show and not by the luck of
// the draw.
func draw(random *rand.Rand, quantile func(u float64) float64) []float64 {
	var all []float64
	for range rollouts / block {
		for _, stratum := range random.Perm(block) {
			u := (float64(stratum) + random.Float64()) / block
			all = append(all, millis(quantile(u)))
		}
	}
	return all
}

// creation is how long the provider takes to make a tunnel: 0.2 to 1.5 s, all
// equally likely.
func creation(u float64) float64 { return 0.2 + 1.3*u }

// generation is the quantile function of how long a generation takes in
// seconds: log-normal above a least time, with p10, p50 and p90 at 16, 19 and
// 26 s, near those of the verifiers benchmark with 32 rollouts, and cut at 45 s.
func generation(u float64) float64 {
	const (
		least  = 13.75
		median = 19
		p90    = 26
		most   = 45
	)
	normal := func(u float64) float64 { return math.Sqrt2 * math.Erfinv(2*u-1) }
	sigma := math.Log((p90-least)/(median-least)) / normal(0.9)
	return min(least+(median-least)*math.Exp(sigma*normal(u)), most)
}

// millis rounds to a thousandth.
func millis(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// durations are the times divided by scale.
func durations(seconds []float64, scale float64) []time.Duration {
	all := make([]time.Duration, len(seconds))
	for i, s := range seconds {
		all[i] = time.Duration(s / scale * float64(time.Second))
	}
	return all
}
