package registry

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"
)

// DefaultUpstream is the upstream of a session that names none.
const DefaultUpstream = "default"

// Spec is what a session is registered with.
type Spec struct {
	ID       string            // made here when empty
	Secret   string            // made here when empty; never kept
	Labels   map[string]string // what [Filter] selects by
	Metadata json.RawMessage   // the client's own, given back as it is

	Upstream     string                     // default [DefaultUpstream]
	Affinity     string                     // what keeps calls on one replica; default the id
	Model        string                     // written into every request; empty leaves the harness's own
	Sampling     map[string]json.RawMessage // top-level request fields
	SamplingMode SamplingMode
	Capture      Capture

	Limits         Limits
	StopConditions []StopCondition
	User           *Hook // plays the harness's user; nil is none
	OnEndpointLoss EndpointLoss
	Lease          time.Duration // 0 is [Options].Lease

	Digest    [32]byte // of the registering request, tells a repeated one from another
	Placement Placement
}

// Capture is what a session wants to know of the tokens of its turns, beyond what its harness asks for.
type Capture struct {
	TokenIDs bool // of prompts and completions
	Logprobs bool // of completions
}

// SamplingMode says who wins when session and harness both set a sampling field.
type SamplingMode string

// The sampling modes. The zero value is SamplingOverride.
const (
	SamplingOverride SamplingMode = "override" // the session wins
	SamplingDefault  SamplingMode = "default"  // the harness wins
)

// Limits of one session. A nil limit does not exist, a zero is a limit like any other.
type Limits struct {
	MaxTurns         *int64
	MaxInputTokens   *int64
	MaxOutputTokens  *int64
	MaxTotalTokens   *int64
	MaxContextTokens *int64 // of the last turn, prompt and completion together

	MaxInflight       *int           // at least 1
	RequestsPerSecond *float64       // above 0
	MaxDuration       *time.Duration // above 0; counts from the first admitted call
}

// StopCondition stops a session after a turn that matches it. Exactly one of ToolCall, TextRegexp and Hook is set. Whoever makes the
// calls asks the hooks, see [Settings]; [Call.Commit] looks at the others.
type StopCondition struct {
	Name       string
	ToolCall   string         // a choice calls the tool of this name
	TextRegexp *regexp.Regexp // a choice's text matches
	Hook       *Hook          // says so
}

// Hook is a URL that is asked about a session, and how long it has to answer.
type Hook struct {
	URL     string
	Timeout time.Duration // 0 is [DefaultHookTimeout]
}

// Budget is how long the hook has to answer.
func (h *Hook) Budget() time.Duration { return cmp.Or(h.Timeout, DefaultHookTimeout) }

// DefaultHookTimeout is how long a hook has that names no time.
const DefaultHookTimeout = time.Minute

// Settings is what a call needs of its session's [Spec], as it was when the call was admitted. It must not be changed.
type Settings struct {
	Model         string
	Upstream      string
	Affinity      string
	Sampling      map[string]json.RawMessage
	SamplingMode  SamplingMode
	Capture       Capture
	HasTokenLimit bool            // so that usage is needed even if the harness does not want it
	StopHooks     []StopCondition // to be asked about every turn, in this order
	User          *Hook           // to be asked for the next messages after every turn without tool calls
}

func (s *Spec) settings() *Settings {
	l := &s.Limits
	var hooks []StopCondition
	for _, c := range s.StopConditions {
		if c.Hook != nil {
			hooks = append(hooks, c)
		}
	}
	return &Settings{
		StopHooks: hooks, User: s.User,
		Model: s.Model, Upstream: s.Upstream, Affinity: cmp.Or(s.Affinity, s.ID),
		Sampling: s.Sampling, SamplingMode: s.SamplingMode, Capture: s.Capture,
		HasTokenLimit: l.MaxInputTokens != nil || l.MaxOutputTokens != nil || l.MaxTotalTokens != nil || l.MaxContextTokens != nil,
	}
}

// clone returns a copy that shares nothing that can be changed, without the secret.
func (s *Spec) clone() Spec {
	c := *s
	c.Secret = ""
	c.Labels = maps.Clone(s.Labels)
	c.Metadata = slices.Clone(s.Metadata)
	c.Sampling = maps.Clone(s.Sampling)
	for key, value := range c.Sampling {
		c.Sampling[key] = slices.Clone(value)
	}
	c.StopConditions = slices.Clone(s.StopConditions)
	c.User = copied(s.User)
	c.Limits = Limits{
		MaxTurns: copied(s.Limits.MaxTurns), MaxInputTokens: copied(s.Limits.MaxInputTokens),
		MaxOutputTokens: copied(s.Limits.MaxOutputTokens), MaxTotalTokens: copied(s.Limits.MaxTotalTokens),
		MaxContextTokens: copied(s.Limits.MaxContextTokens), MaxInflight: copied(s.Limits.MaxInflight),
		RequestsPerSecond: copied(s.Limits.RequestsPerSecond), MaxDuration: copied(s.Limits.MaxDuration),
	}
	return c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
