package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
	"github.com/muxproxy/muxproxy/tunnel"
)

// recorder is the journal and the goroutine that writes it.
type recorder struct {
	*journal.Journal
	stop    context.CancelFunc // nil before start
	stopped chan error
}

// start begins to write. What is submitted until close is written.
func (r *recorder) start(ctx context.Context) {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { r.stopped <- r.Run(ctx) }()
}

// close writes what is left and lets go of the state directory.
func (r *recorder) close(context.Context) error {
	var err error
	if r.stop != nil {
		r.stop()
		err = <-r.stopped
	}
	return errors.Join(err, r.Close())
}

// ready says that turns cannot be recorded at the moment.
func (r *recorder) ready() error {
	if err := r.Stats().Err; err != nil {
		return fmt.Errorf("the journal cannot be written: %w", err)
	}
	return nil
}

// wireJournal opens the journal, if there is to be one. It is stopped once
// nothing is left that could be recorded.
func (d *daemon) wireJournal(ctx context.Context) error {
	if d.cfg.Durability == durabilityMemory {
		return nil
	}
	j, err := journal.Open(ctx, journal.Options{
		Dir:       d.cfg.StateDir,
		Sync:      d.cfg.Durability == durabilityFsync,
		Committed: func(took time.Duration) { d.metrics.JournalCommitDuration.Observe(took.Seconds()) },
		Failing:   d.journalFailing,
	})
	if err != nil {
		return fmt.Errorf("%sSTATE_DIR: %w", prefix, err)
	}
	d.journal = &recorder{Journal: j, stopped: make(chan error, 1)}
	d.teardown.add("journal", d.journal.close)
	return nil
}

func (d *daemon) journalFailing(err error) {
	if err != nil {
		d.log.Error().Err(err).Msg("the journal cannot be written: turns fail until it can")
		return
	}
	d.log.Info().Msg("the journal can be written again")
}

func (d *daemon) journalState() metrics.JournalState {
	if d.journal == nil {
		return metrics.JournalState{}
	}
	stats := d.journal.Stats()
	return metrics.JournalState{Bytes: stats.Bytes, Errors: stats.Errors}
}

// recordedServers are the servers that restored sessions are on.
func (d *daemon) recordedServers() []tunnel.Record {
	var records []tunnel.Record
	known := make(map[string]int) // by URL, index in records
	for _, s := range d.registry.Select(nil) {
		summary := s.Summary()
		if summary.State == registry.StateEnded {
			continue
		}
		at := summary.Placement
		i, ok := known[at.URL]
		if !ok {
			i = len(records)
			known[at.URL] = i
			records = append(records, tunnel.Record{Server: at.Server, URL: at.URL, Sessions: make(map[string]int)})
		}
		records[i].Sessions[summary.ID] = at.Generation
	}
	if d.kept != nil {
		d.kept.restore(records)
	}
	return records
}
