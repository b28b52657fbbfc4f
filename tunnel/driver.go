package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A Driver makes servers reachable from outside. It is safe for concurrent use.
type Driver interface {
	// Name is the driver's label in metrics, logs and the admin API: "frp".
	Name() string
	// Open makes one attempt to open a tunnel to the server and comes back once
	// the tunnel's protocol says that it is up, or with one of the errors below;
	// any other error counts as a [TransientError]. Retrying, pacing and probing
	// through the public URL are the pool's. When Open fails or ctx is done,
	// nothing of the attempt is left; ctx does not bound the life of the tunnel.
	Open(ctx context.Context, l Local) (Tunnel, error)
}

// Local is the near end of a tunnel: a server in this process.
type Local struct {
	// Server is the server's ID, "srv-3".
	Server string
	// Addr is where the server listens, for drivers that forward to an address.
	Addr string
	// Serve hands over a connection that arrived in this process. It does not
	// block; the server closes the connection, at once when it is shut down.
	Serve func(net.Conn)
	// Resume is what Tunnel.Resume gave in an earlier life of the process. Empty,
	// it asks for a new tunnel; otherwise for the old one's URL, or an error.
	Resume string
}

// A Tunnel is one public URL of a server. It is safe for concurrent use.
type Tunnel interface {
	// URL is the public base URL, without a slash at its end. It is constant:
	// reconnecting under it is the driver's business, another URL is another
	// tunnel.
	URL() string
	// Resume is what Open needs to come back under this URL after a restart of
	// the process; empty when that cannot be.
	Resume() string
	// State says whether the tunnel can carry calls, as far as its own protocol
	// knows.
	State() State
	// Changed is closed at the next change of State; then ask for another.
	Changed() <-chan struct{}
	// Done is closed when this URL will never work again, and by Close.
	Done() <-chan struct{}
	// Err is nil before Done, and then ErrClosed, ErrExpired or a *LostError.
	Err() error
	// Close ends the tunnel and leaves nothing behind, here or at the provider.
	// It may be called again, and returns when ctx is done even if the peer
	// hangs.
	Close(ctx context.Context) error
}

// State is what a tunnel knows of itself.
type State int

// The states of a tunnel.
const (
	// Up means connected.
	Up State = iota
	// Reconnecting means that the driver is trying to get the same URL back.
	Reconnecting
)

// String is "up" or "reconnecting".
func (s State) String() string {
	if s == Up {
		return "up"
	}
	return "reconnecting"
}

// HeaderLimiter is a [Driver] whose public side cuts a request that has no
// response headers after so long; zero is no limit.
type HeaderLimiter interface {
	HeaderLimit() time.Duration
}

// FirstProber is a [Driver] whose URLs must not be asked for so long after
// Open, for example because an early look-up in the DNS is remembered.
type FirstProber interface {
	FirstProbe() time.Duration
}

// Retirer is a [Tunnel] whose end is known before it comes.
type Retirer interface {
	// Retire is closed some time before the end: the URL still works, but nobody
	// new should be sent to it.
	Retire() <-chan struct{}
}

// Why a tunnel is done.
var (
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("tunnel closed")
	// ErrExpired means that the provider ended the tunnel.
	ErrExpired = errors.New("tunnel expired")
)

// LostError says why a tunnel's URL will never work again.
type LostError struct {
	Reason string
}

// Error names the reason.
func (e *LostError) Error() string { return "tunnel lost: " + e.Reason }

// Why Open failed. The pool tries again after a [TransientError] and, not
// before its time, after a [RateLimitError]; the others are final.
type (
	// AuthError says that the provider refuses the credential.
	AuthError struct{ Err error }
	// QuotaError says that the account may have no more tunnels: opening another
	// is pointless before one is closed.
	QuotaError struct{ Err error }
	// ConfigError says that what is configured cannot work.
	ConfigError struct{ Err error }
	// TransientError says that the same may work in a moment.
	TransientError struct{ Err error }
	// RateLimitError says that the provider wants no attempt for so long, zero
	// if it did not say how long.
	RateLimitError struct {
		RetryAfter time.Duration
		Err        error
	}
)

// Error names the refusal.
func (e *AuthError) Error() string { return fmt.Sprintf("credential refused: %v", e.Err) }

// Error names the quota.
func (e *QuotaError) Error() string { return fmt.Sprintf("quota reached: %v", e.Err) }

// Error names the setting.
func (e *ConfigError) Error() string { return fmt.Sprintf("bad configuration: %v", e.Err) }

// Error names the fault.
func (e *TransientError) Error() string { return fmt.Sprintf("transient: %v", e.Err) }

// Error names the limit.
func (e *RateLimitError) Error() string {
	return fmt.Sprintf("rate limited, retry after %s: %v", e.RetryAfter, e.Err)
}

// Unwrap is the provider's refusal.
func (e *AuthError) Unwrap() error { return e.Err }

// Unwrap is the provider's refusal.
func (e *QuotaError) Unwrap() error { return e.Err }

// Unwrap is what is wrong with the configuration.
func (e *ConfigError) Unwrap() error { return e.Err }

// Unwrap is the fault.
func (e *TransientError) Unwrap() error { return e.Err }

// Unwrap is the provider's refusal.
func (e *RateLimitError) Unwrap() error { return e.Err }
