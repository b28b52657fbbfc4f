package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// openStreams is the memory of a target with many slow streams open.
type openStreams struct {
	Target       string  `json:"target"`
	Open         int     `json:"open"`
	RSS          float64 `json:"rss_mb"`         // with all of them open
	KiBPerStream float64 `json:"kib_per_stream"` // beyond the target without any
}

// manyStreams get one event a second each.
const manyStreams = 1000

func (b *bench) measureOpenStreams(ctx context.Context, t target) (result openStreams, err error) {
	seconds := 12
	if b.quick {
		seconds = 6
	}
	s, err := set(ctx, t)
	if err != nil {
		return result, err
	}
	defer func() {
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	result = openStreams{Target: t.name, Open: manyStreams}
	if s.pid == 0 {
		return result, nil
	}
	model := pacedModel(seconds, 1)
	r, err := s.register(ctx, manyStreams, model)
	if err != nil {
		return result, err
	}
	before, err := resident(s.pid)
	if err != nil {
		return result, err
	}
	clients, err := r.dial(ctx, requestBody(2<<10, model, true))
	if err != nil {
		return result, err
	}
	defer closeAll(clients)
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error { return c.call(nil) })
	}
	time.Sleep(time.Duration(seconds-2) * time.Second)
	after, err := resident(s.pid)
	if err != nil {
		return result, err
	}
	result.RSS = float64(after) / (1 << 20)
	result.KiBPerStream = float64(after-before) / (1 << 10) / manyStreams
	if err := group.Wait(); err != nil {
		return result, err
	}
	return result, r.end(ctx)
}
