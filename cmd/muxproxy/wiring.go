package main

import (
	"cmp"
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// off is what options take for "never" or "no cap", where their zero is a
// default and the configuration's zero is not.
const off = -1

func (c Config) registry(ended func(id string)) registry.Options {
	return registry.Options{
		MaxSessions:       c.MaxSessions,
		MaxInflight:       c.MaxInflight,
		RequestsPerSecond: c.RequestsPerSecond,
		AdmitTimeout:      c.AdmitTimeout,
		Lease:             c.Lease,
		TombstoneTTL:      c.TombstoneTTL,
		TraceRetention:    *c.TraceRetention,
		MaxTraceBytes:     int64(*c.MaxTraceBytes),
		Ended:             ended,
	}
}

func (c Config) proxy(r *registry.Registry, u *upstream.Set, h *hook.Client, m *metrics.Metrics, limit time.Duration, log zerolog.Logger) proxy.Options {
	return proxy.Options{
		Registry:         r,
		Upstreams:        u,
		Hooks:            h,
		Metrics:          m,
		Logger:           log,
		MaxBodyBytes:     int64(c.MaxBodyBytes),
		MaxInflightBytes: cmp.Or(int64(*c.MaxInflightBytes), off),
		AdmitTimeout:     c.AdmitTimeout,
		Keepalive:        cmp.Or(c.Keepalive, off*time.Second),
		FirstByteTimeout: c.FirstByteTimeout,
		IdleTimeout:      c.IdleTimeout,
		WriteTimeout:     c.WriteTimeout,
		RetryGrace:       cmp.Or(c.RetryGrace, off*time.Second),
		ReplayMaxBytes:   cmp.Or(int64(c.ReplayMaxBytes), off),
		HeaderLimit:      limit,
		SessionHeader:    c.SessionHeader,
	}
}

// sessionEnded gives a session's place back and logs how it ended. One whose
// registration was undone never was: nothing is left of it, and nothing logged.
func (d *daemon) sessionEnded(id string) {
	d.pool.Release(id)
	session, err := d.registry.Get(id)
	if err != nil {
		return
	}
	summary := session.Summary()
	line := d.log.Info().Str("session", id).Str("reason", summary.EndReason).Int("turns", summary.Turns)
	if summary.StopCondition != "" {
		line.Str("stop_condition", summary.StopCondition)
	}
	line.Msg("session ended")
}

// sources are the functions through which a scrape reads the state.
func (d *daemon) sources() metrics.Sources {
	b := readBuild()
	return metrics.Sources{
		Version:  b.version,
		Revision: b.revision,
		Limits: metrics.Limits{
			Sessions:   d.cfg.MaxSessions,
			Inflight:   d.cfg.MaxInflight,
			TraceBytes: int64(*d.cfg.MaxTraceBytes),
		},
		Driver:    d.cfg.Tunnel,
		Registry:  d.registry.Stats,
		Journal:   d.journalState,
		Pool:      func() metrics.PoolState { return poolState(d.pool.Stats()) },
		Upstreams: d.upstreamStates,
	}
}

func (d *daemon) upstreamStates() []metrics.UpstreamState {
	all := d.upstreams.List()
	states := make([]metrics.UpstreamState, 0, len(all))
	for _, u := range all {
		state := metrics.UpstreamState{Name: u.Name, Paused: u.Paused != nil}
		for _, r := range u.Replicas {
			state.Inflight += r.Inflight
			switch r.State {
			case upstream.StateUp:
				state.Up++
			case upstream.StateDown:
				state.Down++
			case upstream.StateDraining:
				state.Draining++
			}
		}
		states = append(states, state)
	}
	return states
}

// reportUnreachable warns of replicas that nothing listens at, which at the
// start is usually a mistake in the configuration. It opens connections and
// sends nothing: a model call could cost money. It always returns nil, because
// a replica may well come up later.
func (d *daemon) reportUnreachable(ctx context.Context) error {
	for _, name := range sortedKeys(d.cfg.Upstreams) {
		for _, replica := range d.cfg.Upstreams[name].Replicas {
			if err := dialReplica(ctx, replica.URL, d.cfg.ConnectTimeout); err != nil && ctx.Err() == nil {
				d.log.Warn().Err(err).Str("upstream", name).Str("url", redacted(replica.URL)).
					Msg("upstream cannot be reached; calls to it will fail until it can")
			}
		}
	}
	return nil
}
