package registry

import (
	"slices"
	"sync/atomic"
	"time"
)

// Turn is one model call that was answered, as it was recorded. Apart from what [Turn.SetDelivered] says it does not change.
type Turn struct {
	Index  int
	Parent *int // the turn whose conversation this one continues, nil if there is none

	Dialect           string
	Route             string
	Model             string // as it was sent upstream; if the request named none, as it was answered
	RequestID         string
	UpstreamRequestID string
	Attempt           int
	Digest            [32]byte // see [CallInfo]
	Added             uint32   // see [Request]
	Upstream          string
	Replica           string

	Status        int
	Stream        bool // the response is a stream of events
	Choices       []Choice
	IDs           []string // under which later requests may refer to the response or to parts of it
	Usage         *Usage   // nil if upstream reported none
	WeightVersion VersionSpan

	StartedAt        time.Time
	TimeToFirstEvent time.Duration
	Duration         time.Duration

	parent        int // what Parent points to
	request       *record
	response      []byte  // without what is in shared
	shared        *record // a run of the response's bytes, nil if there is none
	sharedAt      int
	session       *Session // nil unless there is a journal
	row           uint32   // the turn's in the journal
	contextTokens int64    // of prompt and completion; the nearest ancestor's if this turn's are unknown
	delivered     atomic.Int32
}

// The states of Turn.delivered.
const (
	deliveryUnknown = iota
	deliverySucceeded
	deliveryFailed
)

// Request returns the exact bytes that were sent upstream, in a new slice.
func (t *Turn) Request() []byte { return t.request.bytes() }

// RequestSize returns the length of what Request returns.
func (t *Turn) RequestSize() int { return t.request.size() }

// Response returns the exact bytes that were received, which must not be changed.
func (t *Turn) Response() []byte {
	if t.shared == nil {
		return t.response
	}
	return slices.Concat(t.response[:t.sharedAt], t.shared.bytes(), t.response[t.sharedAt:])
}

// Delivered says whether the last byte was written to the harness, nil if that is not known yet.
func (t *Turn) Delivered() *bool {
	switch t.delivered.Load() {
	case deliverySucceeded:
		return new(true)
	case deliveryFailed:
		return new(false)
	default:
		return nil
	}
}

// SetDelivered says whether the last byte was written to the harness. What was delivered once stays so.
func (t *Turn) SetDelivered(delivered bool) {
	if delivered {
		t.delivered.Store(deliverySucceeded)
	} else if !t.delivered.CompareAndSwap(deliveryUnknown, deliveryFailed) {
		return
	}
	if t.session != nil {
		t.session.noteDelivered(t)
	}
}

func delivery(delivered bool) int32 {
	if delivered {
		return deliverySucceeded
	}
	return deliveryFailed
}

// Usage is what upstream says a turn took. InputTokens has the cached ones in it, OutputTokens those of reasoning.
type Usage struct {
	InputTokens     int64
	OutputTokens    int64
	CachedTokens    int64
	ReasoningTokens int64
}

// Choice is one answer of a turn.
type Choice struct {
	Index        int
	FinishReason string
	Text         func() string `json:"-"` // what stop conditions look at, if there are any; nil is no text, and a recorded turn has none
	ToolCalls    []string      // names of the tools it calls
	Continuation uint64        // hash of the request's messages, or of its text, and this choice; 0 is none
	TextLength   int           // of what Continuation is the hash of, if that is one text; 0 if it is messages
}

// Request is a call as it goes upstream.
type Request struct {
	Body []byte // copied as far as it is new
	// Shared are the spans of Body that are likely to be the same, or to grow, from request to request: ascending, without overlap.
	Shared []Part
	// Prefixes are the hashes of the conversation after each message, to be found among the Continuation of earlier turns.
	Prefixes []uint64
	// List is where Prefixes come from, if they come from a list, and Known what Session.Known said of it.
	List  List
	Known Known
	// TextPrefixes, if the conversation is one text, returns the hashes of its beginnings of the given lengths, which ascend, as far as
	// it is that long.
	TextPrefixes func(lengths []int) []uint64
	// Follows is the turn that the request itself says it continues, nil if it does not say.
	Follows *int
	Model   string
	Added   uint32 // what was added to it that the harness does not know of, in the form that is recorded
}

// Part is the value of a top-level field in a request's body.
type Part struct {
	Key        string
	Start, End int
}

// Response is a call as it came back. What it points to is the registry's once it is committed.
type Response struct {
	Status            int
	Body              []byte // the exact bytes received
	Shared            []byte // a run of Body's bytes that is likely to begin as one of an earlier turn does
	Stream            bool
	Model             string
	UpstreamRequestID string
	Upstream          string
	Replica           string
	Usage             *Usage
	Choices           []Choice
	IDs               []string // see Turn
	WeightVersion     VersionSpan
	StartedAt         time.Time
	TimeToFirstEvent  time.Duration
	Duration          time.Duration
}
