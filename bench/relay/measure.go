package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/bench/rig"
	"github.com/muxproxy/muxproxy/bench/scripted"
)

// A sample is one target measured once.
type sample struct {
	Target, Work string
	round        int
	CPU          float64 // of the target, µs a request or an event
	Rate         float64 // requests or events a second
	Bytes        float64 // allocated a request or an event; 0 is not known
	Allocs       float64
	P50, P99     time.Duration // of a request, or from an event's sending to its arrival
	FirstEvent   time.Duration // median, of a stream
	Connections  int64         // opened to the upstream
}

// stand is a target, ready to be measured, with its upstream behind it.
type stand struct {
	*process
	upstream    *rig.Server
	connections atomic.Int64
}

// set starts the upstream, in this process, and the target.
func set(ctx context.Context, t target) (*stand, error) {
	s := &stand{}
	upstream := &http.Server{ //nolint:gosec // a benchmark on loopback
		Handler: scripted.NewInstant(),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.connections.Add(1)
			}
		},
	}
	var err error
	if s.upstream, err = rig.Serve(ctx, upstream); err != nil {
		return nil, err
	}
	if s.process, err = t.start(ctx, s.upstream.Addr); err != nil {
		s.upstream.Close()
		return nil, err
	}
	return s, nil
}

func (s *stand) close() error {
	err := s.stop()
	s.upstream.Close()
	return err
}

// measure measures one target at one work.
func (b *bench) measure(ctx context.Context, t target, w work) (result sample, err error) {
	s, err := set(ctx, t)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	connections := max(workers, latencyCap)
	if w.name == nameStream {
		connections = w.streams
	}
	if err := s.warmUp(ctx, w); err != nil {
		return sample{}, err
	}
	if w.others > 0 {
		if _, err := s.register(ctx, w.others, w.model); err != nil {
			return sample{}, err
		}
		time.Sleep(settling) // registering is not what is measured, nor is its garbage
	}
	r, err := s.register(ctx, connections, w.model)
	if err != nil {
		return sample{}, err
	}
	clients, err := r.dial(ctx, w.body)
	if err != nil {
		return sample{}, err
	}
	defer closeAll(clients)
	if w.known {
		if err := each(clients); err != nil {
			return sample{}, err
		}
	}
	if w.name == nameStream {
		result, err = s.measureStreams(ctx, clients, w)
	} else if err = drive(clients, w.turns*len(clients)); err == nil {
		result, err = s.measureCalls(ctx, clients, w)
	}
	result.Target, result.Work, result.Connections = t.name, w.name, s.connections.Load()
	if err != nil {
		return sample{}, err
	}
	return result, r.end(ctx)
}

// warmUps is how often a target is warmed up. Memory that was given back is
// used again only after a collection, so that once is not enough.
const warmUps = 3

// warmUp makes as many calls as will be measured, in sessions that end, a few
// times: the target then has the memory that it works with from there on, as
// one that has run for a while does.
func (s *stand) warmUp(ctx context.Context, w work) error {
	for range w.warmUps {
		if err := s.warmUpOnce(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *stand) warmUpOnce(ctx context.Context, w work) error {
	connections, calls, model, body := workers, w.calls, w.model, w.body
	if w.name == nameStream {
		connections, calls, model = w.streams, w.streams, pacedModel(w.events, 0)
		body = requestBody(2<<10, model, true, false)
	}
	r, err := s.register(ctx, connections, model)
	if err != nil {
		return err
	}
	clients, err := r.dial(ctx, body)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := drive(clients, calls); err != nil {
		return err
	}
	return r.end(ctx)
}

func (r *rollouts) dial(ctx context.Context, body string) ([]*client, error) {
	var clients []*client
	for _, a := range r.access {
		c, err := dial(ctx, r.addr, a, body)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.conn.Close()
	}
}

// measureCalls first drives the target as fast as it goes, which gives cost and
// rate, then at a fixed rate well below that, which gives latency.
func (s *stand) measureCalls(ctx context.Context, clients []*client, w work) (sample, error) {
	before, err := s.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	started := time.Now()
	if err := drive(clients[:workers], w.calls); err != nil {
		return sample{}, err
	}
	took := time.Since(started)
	after, err := s.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	result := after.since(before, float64(w.calls))
	result.Rate = float64(w.calls) / took.Seconds()
	latencies, err := pace(clients[:min(latencyCap, w.rate)], w.paced, w.rate)
	result.P50, result.P99 = rig.Quantile(latencies, 0.50), rig.Quantile(latencies, 0.99)
	return result, err
}

// each makes a call with each of the clients.
func each(clients []*client) error {
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error { return c.call(nil) })
	}
	return group.Wait()
}

// drive shares n calls among the clients.
func drive(clients []*client, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := c.call(nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// pace makes n calls at a fixed rate and returns how long each took.
func pace(clients []*client, n, rate int) ([]time.Duration, error) {
	interval := time.Second / time.Duration(rate)
	var next atomic.Int64
	latencies := make([]time.Duration, n)
	start := time.Now()
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				time.Sleep(time.Until(start.Add(time.Duration(i) * interval)))
				sent := time.Now()
				if err := c.call(nil); err != nil {
					return err
				}
				latencies[i] = time.Since(sent)
			}
		})
	}
	err := group.Wait()
	return latencies, err
}

// measureStreams opens all streams and measures while all of them run.
func (s *stand) measureStreams(ctx context.Context, clients []*client, w work) (sample, error) {
	arrivals := make([]eventLog, len(clients))
	var group errgroup.Group
	var events atomic.Int64
	var counting atomic.Bool
	for i, c := range clients {
		group.Go(func() error {
			// Spread over one interval, as streams in the wild are.
			time.Sleep(rand.N(time.Second / eventRate)) //nolint:gosec // not for secrecy
			log := &arrivals[i]
			sent := time.Now()
			return c.call(func(piece []byte) {
				now := time.Now()
				n := eventsIn(piece)
				if n == 0 {
					return
				}
				if log.first == 0 {
					log.first = now.Sub(sent)
				}
				if counting.Load() {
					events.Add(int64(n))
					if at, ok := sentAt(piece); ok {
						log.delays = append(log.delays, now.Sub(at))
					}
				}
			})
		})
	}
	time.Sleep(time.Second) // until all are open and have settled
	before, err := s.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	counting.Store(true)
	time.Sleep(w.window)
	counting.Store(false)
	after, err := s.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	if err := group.Wait(); err != nil {
		return sample{}, err
	}
	result := after.since(before, float64(events.Load()))
	result.Rate = float64(events.Load()) / w.window.Seconds()
	var delays, firsts []time.Duration
	for _, log := range arrivals {
		delays, firsts = append(delays, log.delays...), append(firsts, log.first)
	}
	result.P50, result.P99 = rig.Quantile(delays, 0.50), rig.Quantile(delays, 0.99)
	result.FirstEvent = rig.Quantile(firsts, 0.50)
	return result, nil
}

// eventLog is what one stream saw.
type eventLog struct {
	first  time.Duration
	delays []time.Duration
}

// pacedModel names the upstream's stream of that many events at that many a
// second.
func pacedModel(events, rate int) string { return fmt.Sprintf("paced-%d-%d", events, rate) }
