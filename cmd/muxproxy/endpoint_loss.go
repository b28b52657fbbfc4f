package main

import (
	"context"
	"errors"
	"sync"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
)

// endpointLost does to the sessions of a lost server what they were registered
// with: those that keep going get another endpoint. The pool says it again as
// long as one is left, so that what fails here, or is registered only now, has
// its turn the next time.
func (d *daemon) endpointLost(server string, sessions []string) {
	var moves sync.WaitGroup
	defer moves.Wait()
	for _, id := range sessions {
		session, err := d.registry.Get(id)
		if err != nil || session.State() != registry.StateActive {
			continue
		}
		if session.Spec().OnEndpointLoss == registry.EndpointLossKeep {
			moves.Go(func() { d.moveSession(session) })
			continue
		}
		// Calls in flight are left alone: those that came another way get through.
		if session.Stop(registry.ConditionTunnelLost, false) == nil {
			d.log.Warn().Str("session", id).Str("server", server).Msg("session stopped: its endpoint is lost")
		}
	}
}

// moveSession gives a session another endpoint, waiting for a place as long as
// the pool is there.
func (d *daemon) moveSession(session *registry.Session) {
	to, err := d.pool.Move(context.Background(), session.ID())
	if err == nil {
		err = session.Move(to)
	}
	switch {
	case err == nil:
		d.log.Info().Str("session", session.ID()).Str("server", to.Server).Int("generation", to.Generation).Msg("session moved to another endpoint")
	case errors.Is(err, tunnel.ErrPoolClosed), errors.Is(err, tunnel.ErrNotPlaced), errors.Is(err, registry.ErrSessionEnded):
	default:
		d.log.Warn().Err(err).Str("session", session.ID()).Msg("session not moved to another endpoint yet")
	}
}
