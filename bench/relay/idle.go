package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/muxproxy/muxproxy/bench/rig"
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
	openingAtOnce = 64          // streams
	openingFor    = time.Minute // at most
	settling      = 5 * time.Second
	watching      = 5 * time.Second
)

// measureOpenStreams opens that many streams and watches how much memory the
// target has once all of them are open.
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
	model := pacedModel(int((openingFor+settling+watching)/time.Second), 1)
	// A process that has just started has not all that it begins with.
	small := work{calls: workers, model: nameSmall, body: requestBody(2<<10, nameSmall, false, false)}
	if err := s.warmUpOnce(ctx, small); err != nil {
		return result, err
	}
	before, err := rig.Resident(s.pid)
	if err != nil {
		return result, err
	}
	r, err := s.register(ctx, count, model)
	if err != nil {
		return result, err
	}
	var open opened
	defer open.cut()
	if err := open.all(ctx, r, requestBody(2<<10, model, true, false)); err != nil {
		return result, err
	}
	time.Sleep(settling)
	var most int64
	for end := time.Now().Add(watching); time.Now().Before(end); time.Sleep(time.Second / 4) {
		now, err := rig.Resident(s.pid)
		if err != nil {
			return result, err
		}
		most = max(most, now)
	}
	if n := open.ended.Load(); n > 0 {
		return result, fmt.Errorf("%d %w", n, errEnded)
	}
	return openStreams{
		Target: t.name, Open: count, RSS: float64(most) / (1 << 20),
		KiBPerStream: float64(most-before) / (1 << 10) / float64(count),
	}, nil
}

// opened are streams that run.
type opened struct {
	reading sync.WaitGroup
	ended   atomic.Int64

	mu      sync.Mutex
	clients []*client
}

// all opens one for each session, a few at a time, and returns when each has had
// an event.
func (o *opened) all(ctx context.Context, r *rollouts, body string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openingAtOnce)
	for _, a := range r.access {
		group.Go(func() error {
			c, err := dial(ctx, r.addr, a, body)
			if err != nil {
				return err
			}
			o.mu.Lock()
			o.clients = append(o.clients, c)
			o.mu.Unlock()
			first := make(chan error, 1)
			o.reading.Go(func() {
				err := c.call(func([]byte) {
					select {
					case first <- nil:
					default:
					}
				})
				o.ended.Add(1)
				select {
				case first <- cmp.Or(err, errNoEvent):
				default:
				}
			})
			return <-first
		})
	}
	return group.Wait()
}

func (o *opened) cut() {
	closeAll(o.clients)
	o.reading.Wait()
}

var (
	errNoEvent = errors.New("a stream ended without an event")
	errEnded   = errors.New("streams ended before they were measured")
)

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
