package main

import (
	"context"
	"fmt"
	"time"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
)

// places is the pool as the admin API knows it.
type places struct {
	pool   *tunnel.Pool
	server *tunnel.Server // the only one
	load   func() int
	since  time.Time
}

// Place implements [admin.Pool].
func (p *places) Place(ctx context.Context, sessions ...string) ([]registry.Placement, error) {
	all := make([]registry.Placement, 0, len(sessions))
	for i, session := range sessions {
		at, err := p.pool.Place(ctx, session)
		if err != nil {
			for _, placed := range sessions[:i] {
				p.pool.Release(placed)
			}
			return nil, fmt.Errorf("place session: %w", err)
		}
		all = append(all, at)
	}
	return all, nil
}

// Release implements [admin.Pool].
func (p *places) Release(session string) { p.pool.Release(session) }

// Servers implements [admin.Pool].
func (p *places) Servers() []admin.Server {
	return []admin.Server{{
		ID: p.server.ID(), State: "ready", Driver: tunnelNone, URL: p.server.URL(), Load: p.load(), CreatedAt: p.since,
	}}
}

// Drain implements [admin.Pool].
func (p *places) Drain(string) error { return admin.ErrNoServer }
