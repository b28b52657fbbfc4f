package main

import "strings"

// What the tests look at.
var TreeTime = treeTime

type (
	PeerResults = peerResults
	PeerInfo    = peerInfo
	PeerRun     = peerRun
	Sample      = sample
	Work        = work
)

// At says which round a sample is of.
func (s sample) At(round int) sample {
	s.round = round
	return s
}

// Fill makes runs of samples that were taken with as much of a work as it says.
func (r *peerResults) Fill(samples []sample, fitted map[string]map[string]work) {
	r.fill(samples, fitted)
}

// Table is what is printed.
func (r *peerResults) Table() (string, error) {
	var out strings.Builder
	err := r.table(&out)
	return out.String(), err
}
