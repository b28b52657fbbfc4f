package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// openStreams is the memory of a target with many slow streams open.
type openStreams struct {
	Target       string  `json:"target"`
	Open         int     `json:"open"`
	RSS          float64 `json:"rss_mb"`         // with all of them open, the most that was seen
	KiBPerStream float64 `json:"kib_per_stream"` // beyond the target without any
}

// openCounts are how many streams are opened. Each gets one event a second.
func openCounts(quick bool) []int {
	if quick {
		return []int{100, 1000}
	}
	return []int{1000, 10000}
}

const (
	openingRate = 2000 // streams a second
	settling    = 5 * time.Second
	watching    = 10 * time.Second
)

// measureOpenStreams opens that many streams, or as many as it may have files
// for, and watches how much memory the target has once all are open.
func (b *bench) measureOpenStreams(ctx context.Context, t target, count int) (result openStreams, err error) {
	s, err := set(ctx, t)
	if err != nil {
		return result, err
	}
	defer func() {
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	opening := time.Duration(count) * time.Second / openingRate
	model := pacedModel(int((opening+settling+watching)/time.Second)+2, 1)
	before, err := resident(s.pid)
	if err != nil {
		return result, err
	}
	r, err := s.register(ctx, count, model)
	if err != nil {
		return result, err
	}
	clients, err := r.dial(ctx, requestBody(2<<10, model, true))
	if err != nil {
		return result, err
	}
	defer closeAll(clients)
	var group errgroup.Group
	start := time.Now()
	for i, c := range clients {
		group.Go(func() error {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / openingRate)))
			return c.call(nil)
		})
	}
	time.Sleep(opening + settling)
	var most int64
	for end := time.Now().Add(watching); time.Now().Before(end); time.Sleep(time.Second / 4) {
		now, err := resident(s.pid)
		if err != nil {
			return result, err
		}
		most = max(most, now)
	}
	result = openStreams{
		Target: t.name, Open: count, RSS: float64(most) / (1 << 20),
		KiBPerStream: float64(most-before) / (1 << 10) / float64(count),
	}
	if err := group.Wait(); err != nil {
		return result, err
	}
	return result, r.end(ctx)
}

// otherFiles are what a process may have open beside its streams.
const otherFiles = 128

// streamsUpTo allows this process and those that it starts two files for each of
// that many streams, and returns for how many there are as many as that.
func streamsUpTo(count int) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	want := uint64(2*count + otherFiles) //nolint:gosec // positive
	raised := unix.Rlimit{Cur: want, Max: max(want, limit.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return count, nil
	}
	// Only a privileged process may have more than the hard limit.
	raised = unix.Rlimit{Cur: min(want, limit.Max), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	return min(count, int(raised.Cur-otherFiles)/2), nil //nolint:gosec // far from overflow
}
