package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// profileFor is how long a profile is taken.
const profileFor = 10 * time.Second

// profile puts muxproxy under one kind of load and writes what its processor
// time (cpu.pprof) and its allocations (allocs.pprof) go to into a folder.
func (b *bench) profile(ctx context.Context, name, dir string) error {
	for _, w := range works(false) {
		if w.name != name {
			continue
		}
		s, err := set(ctx, target{nameMux, func(ctx context.Context, upstream string) (*process, error) {
			return b.startMuxproxy(ctx, upstream, "MUXPROXY_PPROF=true")
		}, true})
		if err != nil {
			return err
		}
		defer s.close()
		return s.profile(ctx, w, dir)
	}
	return fmt.Errorf("there is no work %q", name)
}

func (s *stand) profile(ctx context.Context, w work, dir string) error {
	connections := workers
	if w.name == nameStream {
		connections, w.model = streams, pacedModel(eventRate*int(profileFor/time.Second+3), eventRate)
		w.body = requestBody(2<<10, w.model, true, false)
	}
	r, err := s.register(ctx, connections, w.model)
	if err != nil {
		return err
	}
	clients, err := r.dial(ctx, w.body)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	var over atomic.Bool
	var load errgroup.Group
	for _, c := range clients {
		load.Go(func() error {
			for !over.Load() {
				if err := c.call(nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	time.Sleep(time.Second)
	seconds := int(profileFor / time.Second)
	err = s.save(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds), filepath.Join(dir, "cpu.pprof"))
	if err == nil {
		err = s.save(ctx, "/debug/pprof/allocs", filepath.Join(dir, "allocs.pprof"))
	}
	over.Store(true)
	if loadErr := load.Wait(); err == nil {
		err = loadErr
	}
	return err
}

func (p *process) save(ctx context.Context, path, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.daemon.Admin+path, nil)
	if err != nil {
		return err
	}
	profile, err := rig.Do(http.DefaultClient, request)
	if err != nil {
		return err
	}
	return os.WriteFile(file, profile, 0o644) //nolint:gosec // for everybody
}
