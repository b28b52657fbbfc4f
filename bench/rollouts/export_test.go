package main

// What the tests look at.
var (
	DrawTimes     = drawTimes
	RecordedTimes = recordedTimes
	QuantilesOf   = quantilesOf
)

type (
	Results   = results
	RunResult = runResult
	Drawn     = drawn
	Quantiles = quantiles
)

// Aims says which aims were met.
func (r *results) Aims(d drawn) []string { return r.aims(d) }
