package main

import (
	"context"
	"errors"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
)

// places is the pool as the admin API knows it.
type places struct {
	pool *tunnel.Pool
}

// Place implements [admin.Pool].
func (p places) Place(ctx context.Context, sessions ...string) ([]registry.Placement, error) {
	all, err := p.pool.Place(ctx, sessions...)
	if err != nil {
		return nil, placeError(err)
	}
	return all, nil
}

// placeError says it in the words of the admin API.
func placeError(err error) error {
	switch {
	case errors.Is(err, tunnel.ErrPoolFull):
		return admin.ErrPoolFull
	case errors.Is(err, tunnel.ErrBacklog):
		return admin.ErrTunnelBacklog
	case errors.Is(err, tunnel.ErrPoolClosed):
		return registry.ErrDraining
	default:
		return err
	}
}

// Release implements [admin.Pool].
func (p places) Release(session string) { p.pool.Release(session) }

// Servers implements [admin.Pool].
func (p places) Servers() []admin.Server {
	all := p.pool.Servers()
	servers := make([]admin.Server, len(all))
	for i, s := range all {
		servers[i] = admin.Server{
			ID: s.ID, State: string(s.State), Driver: s.Driver, URL: s.URL, Load: s.Sessions, Capacity: s.Capacity,
			CreatedAt: s.CreatedAt, LastError: s.LastError,
		}
	}
	return servers
}

// Drain implements [admin.Pool].
func (p places) Drain(server string) error {
	err := p.pool.Drain(server)
	if errors.Is(err, tunnel.ErrNoServer) {
		return admin.ErrNoServer
	}
	return err
}

// poolState is what a scrape is shown of the pool.
func poolState(s tunnel.Stats) metrics.PoolState {
	servers := make(map[string]int, len(s.Servers))
	for state, n := range s.Servers {
		servers[string(state)] = n
	}
	return metrics.PoolState{Servers: servers, Used: s.Used, Free: s.Free, Coming: s.Coming, Waiting: s.Waiting}
}
