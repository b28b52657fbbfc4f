package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// demo starts a daemon in front of a built-in model, runs rollouts through it
// as harnesses would, checks what was recorded and shows it. The environment's
// MUXPROXY_ variables have no part in it.
func demo(ctx context.Context, p process, flags *flag.FlagSet, args []string) error {
	keep := flags.Bool("keep", false, "stay up afterwards, with commands to try")
	rollouts := flags.Int("rollouts", 8, "how many rollouts to run at once, 1 to 1000")
	turns := flags.Int("turns", 3, "how many model calls each would like to make, 2 to 100")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rollouts < 1 || *rollouts > 1000 || *turns < 2 || *turns > 100 {
		return &usageError{flags.Name(), "-rollouts accepts 1 to 1000 and -turns 2 to 100"}
	}
	model, err := startDemoModel(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = model.Close() }()
	d, err := newDemoDaemon(ctx, p, model.Addr)
	if err != nil {
		return err
	}
	// The daemon outlives ctx by its own shutdown, which stop begins.
	running, stop := context.WithCancel(ctx)
	var serving errgroup.Group
	serving.Go(func() error { return d.run(running) })
	err = showDemo(ctx, p, d, *rollouts, *turns, *keep)
	stop()
	return errors.Join(err, serving.Wait())
}

func showDemo(ctx context.Context, p process, d *daemon, rollouts, turns int, keep bool) error {
	fmt.Fprintf(p.stdout, "muxproxy demo: %d rollouts share %s\nupstream: %s, a few rules that stand in for a model, reachable only in this demo\n\n",
		rollouts, d.server.URL(), demoModelName)
	client := &adminClient{url: d.adminURL(), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: rollouts}}}
	defer client.http.CloseIdleConnections()
	all, err := runDemo(ctx, client, rollouts, turns)
	if err != nil {
		return err
	}
	wrong := verifyDemo(ctx, client, all)
	if err := printDemo(p.stdout, all); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout)
	if wrong != nil {
		return fmt.Errorf("demo: %w", wrong)
	}
	calls := 0
	for _, r := range all {
		calls += len(r.harness.answers)
	}
	fmt.Fprintf(p.stdout, "ok: %d turns, and every trace holds exactly what its harness saw\n\n", calls)
	if err := printTrace(p.stdout, all[0]); err != nil {
		return err
	}
	metrics, err := client.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	printMetrics(p.stdout, metrics)
	if !keep {
		fmt.Fprintln(p.stdout, "Again, and it stays up: make demo DEMO_FLAGS=--keep")
		return nil
	}
	printWhere(p.stdout, d.adminURL(), all[0].id)
	extra, err := client.register(ctx, map[string]any{"id": "try-me", "model": demoModelName})
	if err != nil {
		return err
	}
	printTry(p.stdout, extra)
	<-ctx.Done()
	return nil
}

// startDemoModel serves the built-in model on a free port of the loopback
// interface. Addr of what it returns is where.
func startDemoModel(ctx context.Context) (*http.Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", demoModelName, err)
	}
	server := &http.Server{Addr: listener.Addr().String(), Handler: demoModel{}, ReadHeaderTimeout: 10 * time.Second}
	go serveDemoModel(server, listener) // ended by Close, which demo calls
	return server, nil
}

func serveDemoModel(server *http.Server, listener net.Listener) { _ = server.Serve(listener) }

// newDemoDaemon is the daemon as serve would run it, on free ports.
func newDemoDaemon(ctx context.Context, p process, modelAddr string) (*daemon, error) {
	cfg, err := loadConfig([]string{
		prefix + "LISTEN=127.0.0.1:0", prefix + "ADMIN_LISTEN=127.0.0.1:0",
		prefix + "UPSTREAM_URL=http://" + modelAddr, prefix + "UPSTREAM_API_KEY=" + demoModelKey,
		prefix + "LOG_LEVEL=warn", prefix + "LOG_FORMAT=console",
	})
	if err != nil {
		return nil, err
	}
	return newDaemon(ctx, cfg, newLogger(cfg, p.stderr))
}
