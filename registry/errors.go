package registry

import (
	"errors"
	"fmt"
	"time"
)

// The errors of the package that carry nothing but their identity. The others are types: [EndedError], [StoppedError],
// [BusyError], [InvalidError] and [SpecError].
var (
	// ErrUnknownSecret says that no session, and no tombstone, has this secret.
	ErrUnknownSecret = errors.New("unknown secret")
	// ErrNotFound says that no session, or no turn, has this name.
	ErrNotFound = errors.New("not found")
	// ErrDuplicateID says that the id belongs to a session, a trace or a tombstone that is still kept.
	ErrDuplicateID = errors.New("session id is taken")
	// ErrTooManySessions says that [Options].MaxSessions are live.
	ErrTooManySessions = errors.New("too many sessions")
	// ErrTraceMemoryFull says that traces take more than [Options].MaxTraceBytes and none of them may be dropped.
	ErrTraceMemoryFull = errors.New("trace memory is full")
	// ErrDraining says that the registry takes no more sessions and calls, see [Registry.Drain].
	ErrDraining = errors.New("draining")
	// ErrSealed says that the trace was sealed before the turn could be committed.
	ErrSealed = errors.New("trace is sealed")
	// ErrNotWritten says that something could not be written to the journal. It may be tried again.
	ErrNotWritten = errors.New("not written to the journal")
	// ErrSessionEnded is what every [EndedError] is.
	ErrSessionEnded = errors.New("session ended")
)

// EndedError says that a session has ended, and why. It is an [ErrSessionEnded].
type EndedError struct {
	ID     string
	Reason string // as in [Summary].EndReason
}

func (e *EndedError) Error() string { return fmt.Sprintf("session %s ended: %s", e.ID, e.Reason) }

// Unwrap makes an EndedError an [ErrSessionEnded].
func (e *EndedError) Unwrap() error { return ErrSessionEnded }

// StoppedError says that a session takes no more turns, and under which stop condition.
type StoppedError struct {
	Condition string // as in [Summary].StopCondition
}

func (e *StoppedError) Error() string { return "session stopped: " + e.Condition }

// BusyError says that a call waited, or would have had to wait, longer than [Options].AdmitTimeout.
type BusyError struct {
	What       string        // one of the Busy constants
	RetryAfter time.Duration // whole seconds, from 1 to 60
}

// What a call can be too busy for. The first two belong to the session, the last to the proxy instance.
const (
	BusyMaxInflight       = "max_inflight"
	BusyRequestsPerSecond = "requests_per_second"
	BusyInstance          = "instance"
)

func (e *BusyError) Error() string {
	return fmt.Sprintf("busy: %s, retry after %s", e.What, e.RetryAfter)
}

// InvalidError says which field of a [Spec], a [Filter] or of [Options] cannot be accepted. Field is its name in the admin API.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Message }

// SpecError says which of several specs given to [Registry.Register] could not be registered.
type SpecError struct {
	Index int
	Err   error
}

func (e *SpecError) Error() string { return fmt.Sprintf("session %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *SpecError) Unwrap() error { return e.Err }
