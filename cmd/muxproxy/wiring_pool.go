package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

// wireDriver makes the driver of the pool.
func (d *daemon) wireDriver() (err error) {
	if d.cfg.needsLedger() {
		d.ledger = d.openLedger()
		d.teardown.add("ledger", func(context.Context) error { return d.ledger.Close() })
	}
	if d.driver, err = d.cfg.driver(d.ledger, d.log); err != nil {
		return fmt.Errorf("%sTUNNEL=%s: %w", prefix, d.cfg.Tunnel, err)
	}
	if limit := d.headerLimit(); limit > 0 {
		// A 429 says more than the end of an answer that had to begin before.
		d.cfg.AdmitTimeout = min(d.cfg.AdmitTimeout, limit/2)
	}
	return nil
}

// openLedger returns nil where none can be kept: the daemon serves without, and
// what it leaves behind when it is killed stays.
func (d *daemon) openLedger() *ledger.Ledger {
	dir, err := d.cfg.stateDir("ledger")
	if err == nil {
		var l *ledger.Ledger
		if l, err = ledger.Open(dir); err == nil {
			return l
		}
	}
	d.log.Warn().Err(err).Msg("no folder for a record of what is to be cleaned up if this process is killed")
	return nil
}

// headerLimit is how long the public side of servers waits for the header of an
// answer; 0 is for ever.
func (d *daemon) headerLimit() time.Duration {
	if limited, ok := d.driver.(tunnel.HeaderLimiter); ok {
		return limited.HeaderLimit()
	}
	return 0
}

// wirePool makes the pool, and the servers of one that does not make its own.
func (d *daemon) wirePool(ctx context.Context, handler func(nonce string) http.Handler) error {
	o := d.poolOptions()
	listen := func(ctx context.Context, id, addr, url string) (*tunnel.Server, error) {
		return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Addr: addr, URL: url, Handler: handler, Logger: d.log})
	}
	if err := d.wireKeptServers(&o); err != nil {
		return err
	}
	var err error
	switch {
	case d.cfg.Tunnel == tunnelNone:
		o.Multiplex, o.ProbeInterval = off, off // no tunnel is shared, and none can fail
		if d.server, err = listen(ctx, "srv-1", d.cfg.Listen, d.cfg.AdvertiseURL); err != nil {
			return fmt.Errorf("%sLISTEN: %w", prefix, err)
		}
		o.Servers = []*tunnel.Server{d.server}
	case d.driver == nil:
		for i, s := range d.cfg.StaticServers {
			server, err := listen(ctx, "srv-"+strconv.Itoa(i+1), s.Addr, s.URL)
			if err != nil {
				closeServers(ctx, o.Servers)
				return fmt.Errorf("%sSTATIC_SERVERS: %w", prefix, err)
			}
			o.Servers = append(o.Servers, server)
		}
	default:
		o.Pacer = d.pacer(ctx)
		addr := "" // connections come out in this process
		if d.cfg.Tunnel == tunnelCommand {
			addr = loopback()
		}
		o.Listen = func(ctx context.Context, id string) (*tunnel.Server, error) { return listen(ctx, id, addr, "") }
	}
	if d.pool, err = tunnel.NewPool(o); err != nil {
		closeServers(ctx, o.Servers)
		return fmt.Errorf("wire pool: %w", err)
	}
	d.teardown.add("servers", d.stopServing)
	return nil
}

// poolOptions are those that do not depend on how servers are reached.
func (d *daemon) poolOptions() tunnel.PoolOptions {
	return tunnel.PoolOptions{
		Driver:        d.driver,
		Name:          d.cfg.Tunnel,
		Multiplex:     d.cfg.Multiplex,
		Min:           cmp.Or(d.cfg.PoolMin, off),
		Max:           d.cfg.PoolMax,
		Idle:          d.cfg.PoolIdle,
		ProbeInterval: d.cfg.ProbeInterval,
		ProbeTimeout:  d.cfg.ProbeTimeout,
		EndpointGrace: d.cfg.EndpointGrace,
		Lost:          d.endpointLost,
		Observer: tunnel.Observer{
			Paced: d.metrics.Tunnels.Paced,
			Attempted: func(outcome tunnel.Outcome, took time.Duration) {
				d.metrics.Tunnels.Attempted(metrics.TunnelOutcome(outcome), took)
			},
			ProbeFailed: d.metrics.Tunnels.ProbeFailed,
			Lost:        d.metrics.Tunnels.Lost,
		},
		Logger: d.log,
	}
}

func closeServers(ctx context.Context, servers []*tunnel.Server) {
	for _, s := range servers {
		_ = s.Shutdown(ctx) // it has served nothing
	}
}

// pacer spaces the openings, together with the other processes of this user
// where there is a folder to meet in.
func (d *daemon) pacer(ctx context.Context) *pacing.Pacer {
	o := pacing.Options{Key: d.cfg.paceKey(), Rate: float64(d.cfg.TunnelRate), MaxWait: d.cfg.TunnelMaxWait}
	var err error
	if o.Dir, err = d.cfg.stateDir("pacing"); err == nil {
		var shared *pacing.Pacer
		if shared, err = pacing.New(ctx, o); err == nil {
			return shared
		}
	}
	d.log.Warn().Err(err).Msg("no folder to share the rate of tunnels in: this process has all of it")
	o.Dir = ""
	alone, _ := pacing.New(ctx, o) // only the folder can be at fault: the rate was checked
	return alone
}
