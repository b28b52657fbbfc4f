package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/bench/rig"
)

const (
	recoverySessions = 1000
	recoveryTurns    = 50
	recoveryMessage  = 1 << 10 // that each turn adds, and of each answer twice that
)

// recovery fills a state directory with sessions whose conversations grow,
// kills the daemon, and starts it again.
func (b *bench) recovery(ctx context.Context) (r recovery, err error) {
	d, err := b.start(ctx, modeWrite)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	sessions := recoverySessions / b.scale
	registered, err := d.Register(ctx, sessions, "{}")
	if err != nil {
		return r, err
	}
	var work errgroup.Group
	work.SetLimit(16)
	for _, session := range registered {
		work.Go(func() error {
			c := newCaller(d.Listen, "/v1/chat/completions", session.Secret, 100)
			for range recoveryTurns {
				c.grow(recoveryMessage)
				if err := c.call(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return r, err
	}
	if err := d.Kill(); err != nil {
		return r, err
	}
	r = recovery{Sessions: sessions, Turns: sessions * recoveryTurns}
	if r.DiskMB, err = megabytes(d.state()); err != nil {
		return r, err
	}
	started := time.Now()
	if err := d.launch(ctx); err != nil {
		return r, err
	}
	r.Seconds = time.Since(started).Seconds()
	resident, err := rig.Resident(d.PID())
	if err != nil {
		return r, err
	}
	r.ResidentMB = float64(resident) / (1 << 20)
	fmt.Fprintf(b.log, "%d turns of %d sessions: %.0f MB on disk, back after %.2f s\n", r.Turns, r.Sessions, r.DiskMB, r.Seconds)
	return r, nil
}

func megabytes(dir string) (float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return float64(sum) / (1 << 20), nil
}
