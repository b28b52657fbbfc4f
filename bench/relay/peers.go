package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"runtime"
	"slices"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// A peer is what a user may have instead of muxproxy, or what it is judged by.
type peer struct {
	target
	does string // to each request
	// version fails where the peer is not installed.
	version func(ctx context.Context) (string, error)
	holds   bool // a stream until it is complete, so that its events have no cost of their own
}

// peers are all that are known.
func (b *bench) peers() []peer {
	start := map[string]target{}
	for _, t := range b.targets() {
		start[t.name] = t
	}
	is := func(version string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return version, nil }
	}
	const here, records = "this repository", "records in memory, admits, overrides the model"
	return []peer{
		{target: start[nameDirect]}, // what latency is added to
		{target: start[nameMux], does: records, version: is(here)},
		{target: start[nameControl], does: records, version: is(here)},
		{target: start[nameReverse], does: "relays", version: is(runtime.Version())},
		{target: start[nameNginx], does: "relays", version: says("nginx", "-v")},
		{target: target{name: "haproxy", start: startHAProxy}, does: "relays", version: says("haproxy", "-v")},
		{target: target{name: "caddy", start: startCaddy}, does: "relays", version: says("caddy", "version")},
		b.portkey(), b.litellm(), b.rllm(), b.verifiers(),
	}
}

// peerWorks are those that do not need sessions.
func peerWorks(quick bool) []work {
	return slices.DeleteFunc(works(quick), func(w work) bool { return w.base != "" || w.anew })
}

// says returns a version as a command prints it.
func says(name string, args ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("not installed: %w", err)
		}
		version := regexp.MustCompile(`\d+(\.\d+)+`).Find(out)
		if version == nil {
			return "", fmt.Errorf("%s says no version: %q", name, out)
		}
		return string(version), nil
	}
}

// besidePeers measures muxproxy and all peers that are installed, and writes
// what came out to a file and as a table.
func (b *bench) besidePeers(ctx context.Context, rounds int, file string, out io.Writer) error {
	if err := rig.PinLoad(); err != nil {
		return err
	}
	results := &peerResults{}
	var there []peer
	for _, p := range b.peers() {
		if p.name == nameDirect {
			there = append(there, p)
			continue
		}
		version, err := p.version(ctx)
		if err != nil {
			fmt.Fprintf(b.log, "%s is left out: %v\n", p.name, err)
			results.LeftOut = append(results.LeftOut, leftOut{Name: p.name, Reason: "not installed"})
			continue
		}
		there = append(there, p)
		results.Peers = append(results.Peers, peerInfo{p.name, version, p.does})
	}
	fitted, cannot := b.fitAll(ctx, there)
	results.LeftOut = append(results.LeftOut, cannot...)
	var samples []sample
	for round := range rounds {
		more, cannot, err := b.measurePeers(ctx, there, fitted, round)
		if err != nil {
			return err
		}
		samples, results.LeftOut = append(samples, more...), append(results.LeftOut, cannot...)
		results.Rounds = round + 1
		results.fill(samples, fitted)
		// A run that is cut short has some.
		if err := rig.Save(file, results); err != nil {
			return err
		}
	}
	return results.table(out)
}

// measurePeers measures each peer once at each work that it can do. A peer that
// fails at a work is not tried with it again.
func (b *bench) measurePeers(ctx context.Context, peers []peer, fitted fittedWorks, round int) (samples []sample, cannot []leftOut, err error) {
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for _, all := range peerWorks(b.quick) {
		for _, p := range peers {
			w, can := fitted[p.name][all.name]
			if !can {
				continue
			}
			s, err := b.measure(ctx, p.target, w)
			if err != nil && (p.name == nameMux || p.name == nameDirect || ctx.Err() != nil) {
				return nil, nil, fmt.Errorf("%s through %s: %w", w.name, p.name, err)
			}
			if err != nil {
				fmt.Fprintf(b.log, "%s is left out of %s: %v\n", p.name, w.name, err)
				cannot = append(cannot, leftOut{p.name, w.name, err.Error()})
				delete(fitted[p.name], w.name)
				continue
			}
			s.round = round
			samples = append(samples, s)
			fmt.Fprintf(b.log, "round %d  %-14s %-19s %8.1f us  %8.0f/s\n", round+1, w.name, p.name, s.CPU, s.Rate)
		}
	}
	return samples, cannot, nil
}
