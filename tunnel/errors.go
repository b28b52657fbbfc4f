package tunnel

import (
	"errors"
	"fmt"

	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

// Why a session got no place. Besides these there is [OpenError], and the cause
// of the context of a caller that waited long enough.
var (
	// ErrPoolFull means that the places asked for are more than the pool could
	// ever have.
	ErrPoolFull = errors.New("pool full")
	// ErrBacklog means that so many tunnels are to be made before the one that is
	// needed that waiting is pointless.
	ErrBacklog = pacing.ErrBacklog
	// ErrPoolClosed means that the pool is being shut down.
	ErrPoolClosed = errors.New("pool closed")
)

// Errors of what is asked of a pool by name.
var (
	// ErrNoServer means that no server has this ID.
	ErrNoServer = errors.New("no such server")
	// ErrNotPlaced means that the session has no place, so that it cannot move.
	ErrNotPlaced = errors.New("session has no place")
)

// OpenError says that the server that a session waited for could not be opened.
type OpenError struct {
	Server   string
	Attempts int
	Err      error // of the last attempt
}

// Error names the server and what was wrong.
func (e *OpenError) Error() string {
	return fmt.Sprintf("open %s (attempt %d): %v", e.Server, e.Attempts, e.Err)
}

// Unwrap is the error of the last attempt.
func (e *OpenError) Unwrap() error { return e.Err }

// NotReadyError says that a tunnel was up by its protocol, but that nothing came
// back through its public URL, or not from this server.
type NotReadyError struct {
	URL string
	Err error // of the last probe
}

// Error names the URL and what its last probe got.
func (e *NotReadyError) Error() string { return fmt.Sprintf("%s is not ready: %v", e.URL, e.Err) }

// Unwrap is the error of the last probe.
func (e *NotReadyError) Unwrap() error { return e.Err }
