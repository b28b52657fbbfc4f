package registry

import (
	"encoding/json"
	"time"
)

// State of a session. It only moves forward.
type State string

// The states.
const (
	StateActive  State = "active"
	StateStopped State = "stopped" // takes no more turns; its slot is still held
	StateEnded   State = "ended"   // its slot is free; its trace can be read
)

// Summary is a session at one moment.
type Summary struct {
	ID            string
	State         State
	StopCondition string // of a session that is, or was when it ended, stopped
	EndReason     string // of an ended session

	Turns         int
	Usage         TotalUsage
	FailedCalls   map[FailureKind]int64
	Inflight      int
	ModelTime     time.Duration // spent in model calls, failed ones too
	WeightVersion VersionRange
	LastError     *CallError

	Labels    map[string]string
	Metadata  json.RawMessage
	Placement Placement

	CreatedAt   time.Time
	ExpiresAt   time.Time // when the lease runs out if nothing renews it
	FirstCallAt time.Time // zero before the first admitted call
	LastCallAt  time.Time
	EndedAt     time.Time // zero while the session is live
}

// TotalUsage adds up the usage of a session's turns. Input is counted once: a turn adds only what its prompt has beyond the prompt
// and the completion of its parent. BilledInputTokens is the plain sum.
type TotalUsage struct {
	InputTokens       int64
	OutputTokens      int64
	CachedTokens      int64
	ReasoningTokens   int64
	BilledInputTokens int64
}

// VersionRange holds the lowest and the highest weight version among a session's turns.
type VersionRange struct {
	Min, Max Version
}

func (r *VersionRange) add(v Version) {
	if v.IsZero() {
		return
	}
	if r.Min.IsZero() || v.Compare(r.Min) < 0 {
		r.Min = v
	}
	if r.Max.IsZero() || v.Compare(r.Max) > 0 {
		r.Max = v
	}
}
