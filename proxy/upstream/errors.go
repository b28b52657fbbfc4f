package upstream

import (
	"errors"
	"fmt"
	"time"
)

// Errors of this package. Failures of a call that are neither an
// [UnavailableError] nor a [DialError] nor the cause of its context happened
// after dispatch: a generation may have begun.
var (
	// ErrNoReplica means that every replica is out. It comes wrapped in an
	// [UnavailableError].
	ErrNoReplica = errors.New("no healthy replica")
	// ErrNotFound means that no upstream, or no replica of it, has that name.
	ErrNotFound = errors.New("not found")
)

// UnavailableError says that nothing was tried, because every replica is out.
type UnavailableError struct {
	// Upstream is the name of the upstream.
	Upstream string
	// RetryAfter is how long it takes until a replica is tried again: at least
	// a second, in whole seconds.
	RetryAfter time.Duration
}

// Error implements error.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("upstream %s: %v", e.Upstream, ErrNoReplica)
}

// Unwrap makes the error match [ErrNoReplica].
func (e *UnavailableError) Unwrap() error { return ErrNoReplica }

// DialError says that no connection to a replica could be made or used: not one
// byte of the request was written.
type DialError struct {
	// Replica is the name of the replica tried last.
	Replica string
	// Err is what connecting, or the handshake, ended with.
	Err error
	// Timeout is whether the connect budget ran out.
	Timeout bool
}

// Error implements error.
func (e *DialError) Error() string { return fmt.Sprintf("connect to replica %s: %v", e.Replica, e.Err) }

// Unwrap gives the cause.
func (e *DialError) Unwrap() error { return e.Err }
