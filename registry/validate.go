package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

const maxConditionName = 128

// validate checks the spec of a new or changed session and fills in its defaults, except for those that depend on the registry.
func (s *Spec) validate() error {
	s.Upstream = cmp.Or(s.Upstream, DefaultUpstream)
	s.SamplingMode = cmp.Or(s.SamplingMode, SamplingOverride)
	s.OnEndpointLoss = cmp.Or(s.OnEndpointLoss, EndpointLossStop)
	if s.ID != "" && !validID(s.ID) {
		return &InvalidError{"id", "must have at most 128 characters of A-Z a-z 0-9 . _ - and begin with a letter or digit"}
	}
	if s.SamplingMode != SamplingOverride && s.SamplingMode != SamplingDefault {
		return &InvalidError{"sampling_mode", "must be override or default"}
	}
	if s.OnEndpointLoss != EndpointLossStop && s.OnEndpointLoss != EndpointLossKeep {
		return &InvalidError{"on_endpoint_loss", "must be stop or keep"}
	}
	for key, value := range s.Sampling {
		if !json.Valid(value) {
			return &InvalidError{"sampling." + key, "must be JSON"}
		}
	}
	if s.Metadata != nil && !json.Valid(s.Metadata) {
		return &InvalidError{"metadata", "must be JSON"}
	}
	if s.Lease < 0 {
		return &InvalidError{"lease", "must not be negative"}
	}
	if err := s.Limits.validate(); err != nil {
		return err
	}
	if s.User != nil && (s.User.URL == "" || s.User.Timeout < 0) {
		return &InvalidError{"user", "must have a url, and no negative timeout"}
	}
	return validateConditions(s.StopConditions)
}

func (l *Limits) validate() error {
	for _, limit := range []struct {
		name  string
		value *int64
	}{
		{LimitTurns, l.MaxTurns},
		{LimitInputTokens, l.MaxInputTokens},
		{LimitOutputTokens, l.MaxOutputTokens},
		{LimitTotalTokens, l.MaxTotalTokens},
		{LimitContextTokens, l.MaxContextTokens},
	} {
		if limit.value != nil && *limit.value < 0 {
			return &InvalidError{"limits." + limit.name, "must not be negative"}
		}
	}
	switch {
	case l.MaxInflight != nil && *l.MaxInflight < 1:
		return &InvalidError{"limits.max_inflight", "must be at least 1"}
	case l.RequestsPerSecond != nil && !(*l.RequestsPerSecond > 0 && *l.RequestsPerSecond <= math.MaxFloat64):
		return &InvalidError{"limits.requests_per_second", "must be above 0"}
	case l.MaxDuration != nil && *l.MaxDuration <= 0:
		return &InvalidError{"limits.max_duration", "must be above 0"}
	}
	return nil
}

func validateConditions(conditions []StopCondition) error {
	names := make(map[string]bool, len(conditions))
	for i, c := range conditions {
		field := fmt.Sprintf("stop_conditions[%d]", i)
		switch {
		case c.Name == "" || len(c.Name) > maxConditionName:
			return &InvalidError{field + ".name", "must have from 1 to 128 bytes"}
		case reserved(c.Name):
			return &InvalidError{field + ".name", "is the name of a limit or of a built-in stop condition"}
		case names[c.Name]:
			return &InvalidError{field + ".name", "is the name of another stop condition"}
		case !c.decidable():
			return &InvalidError{field, "must have exactly one of tool_call, text_regexp and url"}
		}
		names[c.Name] = true
	}
	return nil
}

// decidable says that there is exactly one way to decide the condition.
func (c *StopCondition) decidable() bool {
	ways := 0
	for _, way := range [...]bool{c.ToolCall != "", c.TextRegexp != nil, c.Hook != nil && c.Hook.URL != "" && c.Hook.Timeout >= 0} {
		if way {
			ways++
		}
	}
	return ways == 1
}

// reserved says that a rule of this name could not be told from what else stops, or slows, a session.
func reserved(name string) bool {
	switch name {
	case LimitTurns, LimitInputTokens, LimitOutputTokens, LimitTotalTokens, LimitContextTokens, LimitDuration,
		BusyMaxInflight, BusyRequestsPerSecond, ConditionAdmin, ConditionContextLength,
		ConditionTunnelLost, ConditionUserCompleted:
		return true
	}
	return false
}

// expiry returns when a lease that is renewed at the given time runs out.
func (s *Spec) expiry(renewed time.Time) time.Time { return renewed.Add(s.Lease) }
