package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// fittedWorks are the works of each target, by name, with as much of each as it
// does in about the same time as the others.
type fittedWorks map[string]map[string]work

const (
	driveBudget = 700 * time.Millisecond // of the calls at full speed
	paceBudget  = time.Second
	leastCalls  = 8
	leastPaced  = 4
	fitBudget   = 200 * time.Millisecond // of finding out
	paceShare   = 4                      // calls are paced at this part of the full rate
	fullStreams = 800 * time.Millisecond // of the core's second, that all streams may take
	someStreams = 500 * time.Millisecond // that they take where they would take more
	streamFor   = 2 * time.Second
)

// fitAll finds how much of each work each peer does in its budget, and what it
// cannot do.
func (b *bench) fitAll(ctx context.Context, peers []peer) (fitted fittedWorks, cannot []leftOut) {
	fitted = fittedWorks{}
	for _, p := range peers {
		fitted[p.name] = map[string]work{}
		out := func(work string, err error) {
			fmt.Fprintf(b.log, "%s is left out of %s: %v\n", p.name, cmp.Or(work, "all"), err)
			cannot = append(cannot, leftOut{p.name, work, err.Error()})
		}
		s, err := set(ctx, p.target)
		if err != nil {
			out("", err)
			continue
		}
		for _, w := range peerWorks(b.quick) {
			if b.only != "" && b.only != w.name {
				continue
			}
			fit, err := b.fit(ctx, s, p, w)
			if err != nil {
				out(w.name, err)
				continue
			}
			fitted[p.name][w.name] = fit
		}
		if err := s.close(); err != nil {
			out("", err)
		}
	}
	return fitted, cannot
}

var errHolds = errors.New("it holds a stream until it is complete, so that an event by itself has no cost")

// fit returns a work with as much of it as a peer does in its budget.
func (b *bench) fit(ctx context.Context, s *stand, p peer, w work) (fitted work, err error) {
	if w.name == nameStream {
		if p.holds {
			return work{}, errHolds
		}
		if w.streams, err = s.streamsThatFit(ctx); err != nil {
			return work{}, err
		}
		if w.streams < streams {
			w.warmUps = 1 // takes long, and there is no memory to get used to
		}
		if !b.quick {
			w.window = streamFor
		}
		w.events = eventRate * int(w.window/time.Second+3)
		w.model = pacedModel(w.events, eventRate)
		w.body = requestBody(2<<10, w.model, true, false)
		return w, nil
	}
	rate, err := s.rate(ctx, w)
	if err != nil {
		return work{}, err
	}
	if rate*driveBudget.Seconds() < leastCalls {
		w.warmUps = 1
	}
	w.calls = atMost(w.calls, rate, driveBudget, leastCalls)
	w.rate = max(1, min(w.rate, int(rate/paceShare)))
	w.paced = atMost(w.paced, float64(w.rate), paceBudget, leastPaced)
	w.known = true
	return w, nil
}

// atMost is how many calls a budget allows at that rate, at least some and not
// more than most.
func atMost(most int, rate float64, budget time.Duration, least int) int {
	return max(least, min(most, int(rate*budget.Seconds())))
}

// rate is how many calls of a work the target does a second.
func (s *stand) rate(ctx context.Context, w work) (float64, error) {
	r, err := s.register(ctx, workers, w.model)
	if err != nil {
		return 0, err
	}
	clients, err := r.dial(ctx, w.body)
	if err != nil {
		return 0, err
	}
	defer closeAll(clients)
	if err := each(clients); err != nil {
		return 0, err
	}
	for n := leastCalls; ; n *= 2 {
		began := time.Now()
		if err := drive(clients, n); err != nil {
			return 0, err
		}
		if took := time.Since(began); took > fitBudget || n >= w.calls {
			return float64(n) / took.Seconds(), r.end(ctx)
		}
	}
}

// streamsThatFit is how many sparse streams a target has the time for, so that
// what is measured is events that come by themselves and not a queue.
func (s *stand) streamsThatFit(ctx context.Context) (int, error) {
	const tried = 20
	model := pacedModel(eventRate, eventRate)
	r, err := s.register(ctx, tried, model)
	if err != nil {
		return 0, err
	}
	clients, err := r.dial(ctx, requestBody(2<<10, model, true, false))
	if err != nil {
		return 0, err
	}
	defer closeAll(clients)
	before, err := s.usage(ctx)
	if err != nil {
		return 0, err
	}
	if err := drive(clients, tried); err != nil {
		return 0, err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return 0, err
	}
	each := (after.cpu - before.cpu) / tried // one stream in one second
	if each*streams <= fullStreams {
		return streams, r.end(ctx)
	}
	return max(1, int(someStreams/each)), r.end(ctx)
}
