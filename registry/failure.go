package registry

import "time"

// FailureKind says why a call made no turn.
type FailureKind string

// The failure kinds, a closed set.
const (
	FailureTimeout            FailureKind = "timeout"             // an upstream budget ran out
	FailureRateLimit          FailureKind = "rate_limit"          // upstream answered 429, or is paused
	FailureAuth               FailureKind = "auth"                // upstream answered 401, 403 or 407
	FailureClientError        FailureKind = "client_error"        // upstream answered another 4xx
	FailureUpstreamError      FailureKind = "upstream_error"      // upstream answered 5xx, an error in a 200, or nonsense
	FailureUpstreamTruncated  FailureKind = "upstream_truncated"  // upstream's answer ended too early
	FailureConnection         FailureKind = "connection"          // upstream could not be reached or the connection broke
	FailureClientDisconnected FailureKind = "client_disconnected" // the harness went away
	FailureCancelled          FailureKind = "cancelled"           // the session ended or was stopped
	FailureAborted            FailureKind = "aborted"             // upstream or a pause aborted it, or the process ended
	FailureCommitFailed       FailureKind = "commit_failed"       // the turn could not be recorded
)

// FailureKinds returns all failure kinds.
func FailureKinds() []FailureKind {
	return []FailureKind{
		FailureTimeout, FailureRateLimit, FailureAuth, FailureClientError, FailureUpstreamError, FailureUpstreamTruncated,
		FailureConnection, FailureClientDisconnected, FailureCancelled, FailureAborted, FailureCommitFailed,
	}
}

// Failure is how a call failed.
type Failure struct {
	Kind              FailureKind
	Status            int // 0 if upstream gave none
	Message           string
	Received          []byte // what came back before it failed; the registry keeps the slice
	UpstreamRequestID string
	Upstream          string
	Replica           string
	StartedAt         time.Time
	TimeToFirstEvent  time.Duration
	Duration          time.Duration
}

// CallError is the error of a failed call.
type CallError struct {
	Kind    FailureKind
	Status  int
	Message string
}

// FailedCall is a call that made no turn, as it was recorded. It does not change.
type FailedCall struct {
	Dialect           string
	Route             string
	Model             string
	RequestID         string
	UpstreamRequestID string
	Attempt           int
	Digest            [32]byte // see [CallInfo]
	Upstream          string
	Replica           string

	Error    CallError
	Received []byte // must not be changed

	StartedAt        time.Time
	TimeToFirstEvent time.Duration
	Duration         time.Duration

	request *record
	row     uint32 // the call's in the journal
}

// Request returns the exact bytes that were sent upstream, in a new slice, nil if the call failed before they were known.
func (f *FailedCall) Request() []byte { return f.request.bytes() }

func (f *FailedCall) cost() int64 { return int64(cap(f.Received) + len(f.Error.Message)) }

// keptFailures is how many of a session's first, and how many of its last, failed calls are kept.
const keptFailures = 100

// failureLog keeps the first and the last failed calls of a session and counts them all.
type failureLog struct {
	first  []*FailedCall
	last   []*FailedCall // a ring once it is full, next is then the oldest
	next   int
	total  int64
	byKind map[FailureKind]int64
	time   time.Duration // of all
}

// add returns the failed call that had to make room, nil if there was room.
func (l *failureLog) add(f *FailedCall) (dropped *FailedCall) {
	if l.byKind == nil {
		l.byKind = make(map[FailureKind]int64)
	}
	l.total++
	l.byKind[f.Error.Kind]++
	l.time += f.Duration
	return l.keep(f)
}

// keep is add for a call that has been counted.
func (l *failureLog) keep(f *FailedCall) (dropped *FailedCall) {
	switch {
	case len(l.first) < keptFailures:
		l.first = append(l.first, f)
	case len(l.last) < keptFailures:
		l.last = append(l.last, f)
	default:
		dropped, l.last[l.next] = l.last[l.next], f
		l.next = (l.next + 1) % keptFailures
	}
	return dropped
}

// kept returns what is kept, oldest first.
func (l *failureLog) kept() []*FailedCall {
	kept := make([]*FailedCall, 0, len(l.first)+len(l.last))
	kept = append(kept, l.first...)
	kept = append(kept, l.last[l.next:]...)
	return append(kept, l.last[:l.next]...)
}

// drop lets go of what is kept, and goes on knowing how many there were.
func (l *failureLog) drop() { l.first, l.last, l.next = nil, nil, 0 }
