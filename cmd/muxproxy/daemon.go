package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// teardownReserve is what stopping may take once the calls in flight have had
// SHUTDOWN_TIMEOUT. With the default of 25 s both fit the 30 s that Kubernetes
// gives a pod.
const teardownReserve = 3 * time.Second

// closeGrace is how long closing the servers and their tunnels may take at
// least.
const closeGrace = teardownReserve / 2

// cutGrace is how long calls that are cut at the end of a drain have to tell
// their clients.
const cutGrace = time.Second

// errDraining is why a daemon that is being stopped is not ready.
var errDraining = errors.New("draining")

// daemon is the whole of muxproxy, wired. Make one with newDaemon, which binds
// both listeners; serve with run.
type daemon struct {
	cfg Config
	log zerolog.Logger

	journal   *recorder // nil with traces in memory alone
	registry  *registry.Registry
	upstreams *upstream.Set
	metrics   *metrics.Metrics
	driver    tunnel.Driver  // nil when none opens tunnels
	ledger    *ledger.Ledger // nil when none is needed, or can be kept
	server    *tunnel.Server // that listens at LISTEN; nil with another driver than none
	pool      *tunnel.Pool
	kept      *keptServers // nil when servers do not outlast the process
	admin     *adminServer

	draining atomic.Bool
	teardown teardown

	background     errgroup.Group
	stopBackground context.CancelFunc // nil before run
}

// newDaemon wires a daemon and binds its listeners, so that a busy port is an
// error here. Nothing is served, and no goroutine runs, before run; a daemon
// that is never run must be closed.
func newDaemon(ctx context.Context, cfg Config, log zerolog.Logger) (*daemon, error) {
	d := &daemon{cfg: cfg, log: log}
	if err := d.wire(ctx); err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	return d, nil
}

// wire builds from the bottom up. What is built first is stopped last: the
// admin listener, so that the end can be watched through it.
func (d *daemon) wire(ctx context.Context) (err error) {
	if d.admin, err = listenAdmin(ctx, d.cfg.AdminListen, d.log); err != nil {
		return fmt.Errorf("%sADMIN_LISTEN: %w", prefix, err)
	}
	d.teardown.add("admin listener", d.admin.shutdown)

	if err := d.wireJournal(ctx); err != nil {
		return err
	}
	if err := d.wireDriver(); err != nil {
		return err
	}
	// The pool learns from the registry when a place is free, and is made once
	// there is a server, which is before any session.
	options := d.cfg.registry(d.sessionEnded)
	if d.journal != nil {
		options.Journal = d.journal
	}
	if d.registry, err = registry.New(options); err != nil {
		return fmt.Errorf("wire registry: %w", err)
	}
	if err := d.registry.Restore(); err != nil {
		return fmt.Errorf("%sSTATE_DIR: %w", prefix, err)
	}
	gatherer := prometheus.NewRegistry()
	if d.metrics, err = metrics.New(gatherer, d.sources()); err != nil {
		return fmt.Errorf("wire metrics: %w", err)
	}
	if err := d.wireUpstreams(); err != nil {
		return err
	}
	d.teardown.add("background work", d.endBackground)
	hooks := hook.New(hook.Options{Hosts: d.cfg.HookHosts.Hosts})
	d.teardown.add("hook connections", func(context.Context) error { hooks.Close(); return nil })
	data, err := proxy.New(d.cfg.proxy(d.registry, d.upstreams, hooks, d.metrics, d.headerLimit(), d.log))
	if err != nil {
		return fmt.Errorf("wire proxy: %w", err)
	}
	if err := d.wirePool(ctx, data.Handler); err != nil {
		return err
	}
	d.pool.Restore(d.recordedServers())
	return d.wireAdmin(metrics.Handler(gatherer))
}

func (d *daemon) wireUpstreams() error {
	d.upstreams = upstream.NewSet(upstream.Options{
		ConnectTimeout: d.cfg.ConnectTimeout,
		HealthInterval: d.cfg.UpstreamHealthInterval,
		Logger:         d.log,
		Observer: upstream.Observer{
			ConnectionOpened: d.metrics.ConnectionOpened,
			Done:             d.metrics.UpstreamDone,
		},
	})
	d.teardown.add("upstream connections", func(context.Context) error { d.upstreams.Close(); return nil })
	for _, name := range sortedKeys(d.cfg.Upstreams) {
		if err := d.upstreams.Put(name, d.cfg.Upstreams[name]); err != nil {
			return fmt.Errorf("configure upstream %s: %w", name, err)
		}
	}
	return nil
}

func (d *daemon) wireAdmin(scrape http.Handler) error {
	options := admin.Options{
		Registry:    d.registry,
		Upstreams:   d.upstreams,
		Pool:        places{d.pool},
		HookHosts:   d.cfg.HookHosts.Hosts,
		Token:       string(d.cfg.AdminToken),
		Metrics:     scrape,
		MetricsAuth: d.cfg.MetricsAuth,
		Ready:       d.ready,
		Version:     readBuild().version,
		Registered:  func(t time.Duration) { d.metrics.RegisterDuration.Observe(t.Seconds()) },
		Refused:     d.metrics.Refusal,
		Logger:      d.log,
	}
	if d.cfg.Pprof {
		options.Profiles = profiles()
	}
	api, err := admin.New(options)
	if err != nil {
		return fmt.Errorf("wire admin API: %w", err)
	}
	api.LogWarnings(d.registry.Select(nil)) // of those that were restored
	d.admin.serve(api.Handler())
	return nil
}

// run serves until ctx is done, or until a listener fails, and then stops in
// order. It returns nil when everything was served to its end.
func (d *daemon) run(ctx context.Context) error {
	// What was begun before ctx was done is not cut by it but by the teardown.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stopBackground = stop
	if d.journal != nil {
		d.journal.start(work)
	}
	d.background.Go(func() error { return d.registry.Run(work) })
	d.background.Go(func() error { return d.upstreams.Run(work) })
	d.background.Go(func() error { collectNowAndThen(work); return nil })
	if cleaner, ok := d.driver.(interface{ Run(context.Context) error }); ok {
		d.background.Go(func() error { return cleaner.Run(work) })
	}

	listeners, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	listeners.Go(func() error { return d.pool.Run(context.WithoutCancel(ctx)) })
	listeners.Go(d.admin.run)

	err := d.announce()
	if err == nil {
		d.background.Go(func() error { return d.reportUnreachable(work) })
		select {
		case <-ctx.Done():
		case <-failed.Done():
		}
		d.log.Info().AnErr("cause", context.Cause(ctx)).Msg("stopping")
	}
	return errors.Join(err, d.close(ctx), listeners.Wait())
}

// endBackground ends what run keeps going beside the listeners. It waits until
// ctx is done at most: a provider may hang.
func (d *daemon) endBackground(ctx context.Context) error {
	if d.stopBackground == nil {
		return nil
	}
	d.stopBackground()
	ended := make(chan error, 1)
	go func() { ended <- d.background.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announce tells the world that the daemon serves.
func (d *daemon) announce() error {
	for _, warning := range d.cfg.warnings() {
		d.log.Warn().Msg(warning)
	}
	if len(d.cfg.Ineffective) > 0 {
		d.log.Warn().Strs("variables", d.cfg.Ineffective).Str("tunnel", d.cfg.Tunnel).Msg("set, but without effect with this driver")
	}
	ready := readyFile{PID: os.Getpid(), AdminListen: d.admin.addr(), AdminURL: d.adminURL()}
	if d.server != nil {
		ready.Listen, ready.URL = d.server.Addr().String(), d.server.URL()
	}
	if d.cfg.ReadyFile != "" {
		if err := ready.write(d.cfg.ReadyFile); err != nil {
			return fmt.Errorf("%sREADY_FILE: %w", prefix, err)
		}
		d.teardown.add("ready file", func(context.Context) error { return removeReadyFile(d.cfg.ReadyFile) })
	}
	line := d.log.Info().Str("version", readBuild().version).Str("tunnel", d.cfg.Tunnel)
	if d.server != nil {
		line.Str("listen", ready.Listen).Str("url", ready.URL)
	}
	line.Str("admin", ready.AdminURL).Strs("upstreams", sortedKeys(d.cfg.Upstreams)).Msg("serving")
	return nil
}

// close stops whatever was started. It has a budget of its own, because ctx is
// usually done when it is called.
func (d *daemon) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.ShutdownTimeout+teardownReserve)
	defer cancel()
	return d.teardown.run(ctx)
}

// stopServing refuses new work, lets the calls in flight finish within
// SHUTDOWN_TIMEOUT with the tunnels still up, and cuts what is left. The servers
// listen until then: a refusal with Retry-After says more than a refused
// connection.
func (d *daemon) stopServing(ctx context.Context) error {
	d.draining.Store(true)
	d.registry.Drain()
	finishing, cancel := context.WithTimeout(ctx, d.cfg.ShutdownTimeout)
	defer cancel()
	var err error
	if d.pool.Quiesce(finishing) != nil {
		// What is left is told why it ends, and has a moment to say so.
		err = fmt.Errorf("%d calls cut: %w", d.registry.Cut(), context.Cause(finishing))
		telling, stop := context.WithTimeout(ctx, cutGrace)
		defer stop()
		_ = d.pool.Quiesce(telling) // what is left even then, Shutdown cuts
	}
	// Time that the calls did not need is the tunnels'.
	left := closeGrace
	if by, ok := finishing.Deadline(); ok {
		left += max(time.Until(by), 0)
	}
	closing, stop := context.WithTimeout(ctx, left)
	defer stop()
	return errors.Join(err, d.pool.Shutdown(closing))
}

// ready says why no session can be placed.
func (d *daemon) ready() error {
	if d.draining.Load() {
		return errDraining
	}
	if d.journal != nil {
		if err := d.journal.ready(); err != nil {
			return err
		}
	}
	return d.pool.Ready()
}

// adminURL is where the admin API can be reached from this machine.
func (d *daemon) adminURL() string { return "http://" + reachable(d.admin.addr()) }
