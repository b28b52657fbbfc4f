package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// What is kept in a journal is JSON with the names of the fields in this package, so that a field that is added is kept as well.

// keptSpec is a Spec in which what was JSON before stays as it was, byte for byte, which encoding/json would not leave it.
type keptSpec struct {
	Spec
	Metadata []byte
	Sampling map[string][]byte
	Digest   []byte
}

func (s *Spec) encode() []byte {
	kept := keptSpec{Spec: *s, Metadata: s.Metadata, Digest: s.Digest[:]}
	if s.Sampling != nil {
		kept.Sampling = make(map[string][]byte, len(s.Sampling))
	}
	for key, value := range s.Sampling {
		kept.Sampling[key] = value
	}
	return mustEncode(kept)
}

func decodeSpec(raw []byte) (*Spec, error) {
	var kept keptSpec
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	spec := kept.Spec
	spec.Metadata = kept.Metadata
	if kept.Sampling != nil {
		spec.Sampling = make(map[string]json.RawMessage, len(kept.Sampling))
	}
	for key, value := range kept.Sampling {
		spec.Sampling[key] = value
	}
	if len(kept.Digest) != len(spec.Digest) {
		return nil, errors.New("read spec: the digest has another length")
	}
	copy(spec.Digest[:], kept.Digest)
	return &spec, nil
}

// keptState is what a session is beside its spec and its turns.
type keptState struct {
	State         State
	StopCondition string `json:",omitempty"`
	DurationOver  bool   `json:",omitempty"`
	CreatedAt     time.Time
	ExpiresAt     time.Time
	FirstCallAt   time.Time `json:",omitzero"`
	LastCallAt    time.Time `json:",omitzero"`

	Failures    map[FailureKind]int64 `json:",omitempty"` // how many there were
	FailureTime time.Duration         `json:",omitempty"`
	LastError   *CallError            `json:",omitempty"`

	Final *Summary `json:",omitempty"` // of an ended session, without what the spec has
}

// encodeState is the caller's to guard with s.mu. A session that has begun to end is live until its trace is sealed.
func (s *Session) encodeState() []byte {
	kept := keptState{
		State: s.state, StopCondition: s.stopCondition, DurationOver: s.durationOver,
		CreatedAt: s.createdAt, ExpiresAt: s.expiresAt, FirstCallAt: s.firstCallAt, LastCallAt: s.lastCallAt,
		Failures: s.failures.byKind, FailureTime: s.failures.time, LastError: s.lastError,
	}
	if s.final != nil {
		final := *s.final
		final.Labels, final.Metadata = nil, nil
		kept.Final = &final
	} else if s.state == StateEnded {
		kept.State = StateActive
		if s.stopCondition != "" {
			kept.State = StateStopped
		}
	}
	return mustEncode(kept)
}

func decodeState(raw []byte) (*keptState, error) {
	kept := new(keptState)
	if err := json.Unmarshal(raw, kept); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return kept, nil
}

// keptTurn is a Turn without what is kept elsewhere, or follows from its place.
type keptTurn struct {
	*Turn
	Index      *int `json:",omitempty"` // it shadows the turn's
	SharedAt   int  `json:",omitempty"` // where in the response the run is that is kept apart
	AdmittedAt time.Time
	Condition  string `json:",omitempty"` // that it met
}

func encodeTurn(t *Turn, admitted time.Time, condition string) []byte {
	return mustEncode(keptTurn{Turn: t, SharedAt: t.sharedAt, AdmittedAt: admitted, Condition: condition})
}

func decodeTurn(raw []byte) (*keptTurn, error) {
	kept := &keptTurn{Turn: new(Turn)}
	if err := json.Unmarshal(raw, kept); err != nil {
		return nil, fmt.Errorf("read turn: %w", err)
	}
	return kept, nil
}

// keptFailed is a FailedCall without what is kept elsewhere.
type keptFailed struct {
	*FailedCall
	Received []byte `json:",omitempty"` // it shadows the call's
}

func encodeFailed(f *FailedCall) []byte { return mustEncode(keptFailed{FailedCall: f}) }

func decodeFailed(raw []byte) (*FailedCall, error) {
	kept := keptFailed{FailedCall: new(FailedCall)}
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, fmt.Errorf("read failed call: %w", err)
	}
	return kept.FailedCall, nil
}

// mustEncode encodes values whose types cannot fail.
func mustEncode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return raw
}
