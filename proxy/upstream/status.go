package upstream

import "github.com/muxproxy/muxproxy/registry"

// State is whether a replica takes calls.
type State string

// The states of a replica.
const (
	StateUp       State = "up"
	StateDown     State = "down"     // out until its backoff or health check says otherwise
	StateDraining State = "draining" // removed; finishes the calls it has
)

// Status is what may be shown of an upstream: no credential and no header value.
type Status struct {
	Name      string   `json:"name"`
	Style     Style    `json:"style"`
	Usage     Usage    `json:"usage"`
	Headers   []string `json:"headers,omitempty"` // names only
	HasAPIKey bool     `json:"has_api_key"`
	// Inflight counts the calls that were sent and whose answer has not been
	// closed; those that a pause holds are not among them.
	Inflight int             `json:"inflight"`
	Paused   *PauseStatus    `json:"paused,omitempty"`
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is what may be shown of a replica.
type ReplicaStatus struct {
	Name  string `json:"name"`
	URL   string `json:"url"` // user information hidden
	State State  `json:"state"`
	// Inflight counts calls whose answer has not been closed.
	Inflight int `json:"inflight"`
	// LastError is why the replica was taken out last; empty once it is well.
	LastError     string           `json:"last_error,omitempty"`
	WeightVersion registry.Version `json:"weight_version,omitzero"`
}
