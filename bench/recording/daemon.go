package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
	"github.com/muxproxy/muxproxy/bench/scripted"
)

// A daemon is a running muxproxy with its upstream.
type daemon struct {
	*rig.Daemon
	program  rig.Program
	upstream *rig.Server
}

// stopFor is how long a daemon has to write what it has not written yet.
const stopFor = time.Minute

func (b *bench) start(ctx context.Context, mode string) (*daemon, error) {
	dir, err := os.MkdirTemp(b.dir, "muxproxy-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{program: rig.Program{Args: []string{b.binary}, Dir: dir, Alone: true, StopFor: stopFor}}
	d.upstream, err = rig.Serve(ctx, &http.Server{Handler: scripted.NewInstant()}) //nolint:gosec // a benchmark on loopback
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.program.Env = []string{"MUXPROXY_LISTEN=127.0.0.1:0", "MUXPROXY_UPSTREAM_URL=http://" + d.upstream.Addr, "MUXPROXY_LOG_LEVEL=error"}
	if mode == modeWrite || mode == modeFsync {
		d.program.Env = append(d.program.Env, "MUXPROXY_STATE_DIR="+d.state(), "MUXPROXY_DURABILITY="+mode)
	}
	if err := d.launch(ctx); err != nil {
		d.upstream.Close()
		return nil, err
	}
	return d, nil
}

// launch starts the process, for the first time or again in its folder.
func (d *daemon) launch(ctx context.Context) error {
	started, err := rig.StartDaemon(ctx, d.program)
	if err != nil {
		return err
	}
	d.Daemon = started
	return nil
}

// state is the folder of the journal.
func (d *daemon) state() string { return filepath.Join(d.program.Dir, "state") }

// stop ends the process and removes what it has written.
func (d *daemon) stop() error {
	err := d.Stop()
	d.upstream.Close()
	return err
}

// transactions is how many the journal has committed.
func (d *daemon) transactions(ctx context.Context) (float64, error) {
	families, err := rig.Metrics(ctx, d.Admin+"/metrics")
	if err != nil {
		return 0, err
	}
	return float64(families["muxproxy_journal_commit_duration_seconds"].GetMetric()[0].GetHistogram().GetSampleCount()), nil
}
