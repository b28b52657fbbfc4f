package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// Pool is what the API needs of the servers. An implementation is safe for
// concurrent use.
type Pool interface {
	// Place gives each session a place on a server, all of them or none, waiting
	// for them from one position in the queue until ctx is done. The error is the
	// cause of ctx or one of the errors below; any other counts as
	// [ErrTunnelFailed]. A place is the session's until Release, which whoever
	// wires pool and registry calls when it ends.
	Place(ctx context.Context, sessions ...string) ([]registry.Placement, error)
	// Release gives back the place of a session that was never registered. It
	// does nothing for a session without one.
	Release(session string)
	// Servers lists the servers, the oldest first.
	Servers() []Server
	// Drain places no more sessions on the server, and closes it when it has
	// none. The error is ErrNoServer if there is none of this name.
	Drain(server string) error
}

// Why a [Pool] does not do as it is asked.
var (
	// ErrPoolFull means that there is no place and the pool may not grow.
	ErrPoolFull = errors.New("pool full")
	// ErrTunnelBacklog means that the tunnel a session waits for is not due for
	// longer than anyone may wait.
	ErrTunnelBacklog = errors.New("too many tunnels to be opened")
	// ErrTunnelFailed means that no server could be opened.
	ErrTunnelFailed = errors.New("no server could be opened")
	// ErrNoServer means that no server has this name.
	ErrNoServer = errors.New("no such server")
)

// Server is a server of the pool.
type Server struct {
	ID        string
	State     string // one of ServerStates
	Driver    string
	URL       string // "" while it has none
	Load      int    // sessions placed on it
	Capacity  int    // sessions that it takes; 0 is no cap
	CreatedAt time.Time
	LastError string // of its tunnel and its probes; "" while all is well
}

// placeError is the problem of a session that got no place.
func (a *API) placeError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, registry.ErrDraining):
		return err
	case errors.Is(err, ErrPoolFull):
		return retriable(retryAfter, http.StatusServiceUnavailable, codePoolFull, "the pool has fewer places than that and may not grow")
	case errors.Is(err, ErrTunnelBacklog):
		return retriable(retryAfterBacklog, http.StatusServiceUnavailable, codeTunnelBacklog,
			"so many tunnels are to be opened before that the next one's turn is too far away")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return retriable(retryAfter, http.StatusServiceUnavailable, codePoolWaiting, a.noPlace())
	case ctx.Err() != nil:
		return context.Canceled
	}
	a.opts.Logger.Warn().Err(err).Msg("placing a session failed")
	return retriable(retryAfter, http.StatusServiceUnavailable, codeTunnelFailed, "no server could be opened: "+err.Error())
}

// noPlace says that nobody got a place in time, and why no server gives any,
// where it is not that all are full.
func (a *API) noPlace() string {
	const detail = "no server had a place in time"
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			return detail + ": " + err.Error()
		}
	}
	return detail
}
