package registry

import (
	"slices"
	"time"
)

// The stop conditions that are not a rule's name.
const (
	LimitTurns         = "max_turns"
	LimitInputTokens   = "max_input_tokens"
	LimitOutputTokens  = "max_output_tokens"
	LimitTotalTokens   = "max_total_tokens"
	LimitContextTokens = "max_context_tokens"
	LimitDuration      = "max_duration"

	ConditionAdmin         = "admin_stop"     // see [Session.Stop]
	ConditionContextLength = "context_length" // upstream says the prompt is too long
	ConditionTunnelLost    = "tunnel_lost"    // see [EndpointLossStop]
	ConditionUserCompleted = "user_completed" // its user simulator says that it is done
)

// refuse returns why no call can be admitted now, nil if one can. A session at a limit is stopped by it, so that its state says why.
// Only when it is the calls in flight that take the last turns does it stay active: they may fail and give their place back.
func (s *Session) refuse(now time.Time) error {
	if ended := s.ended.Load(); ended != nil {
		return ended
	}
	if s.state == StateActive {
		s.stopAtLimit(now)
	}
	if s.state == StateStopped {
		return &StoppedError{s.stopCondition}
	}
	if limit := s.spec.Limits.MaxTurns; limit != nil && int64(len(s.turns)+s.reserved) >= *limit {
		s.refusedTurn = true
		return &StoppedError{LimitTurns}
	}
	return nil
}

func (s *Session) stopAtLimit(now time.Time) {
	if s.endDuration(now) {
		return
	}
	if limit := s.limitReached(); limit != "" {
		s.stop(limit, false)
	}
}

// limitReached returns the first limit that the recorded turns have reached.
func (s *Session) limitReached() string {
	l := &s.spec.Limits
	for _, limit := range [...]struct {
		name  string
		limit *int64
		value int64
	}{
		{LimitTurns, l.MaxTurns, int64(len(s.turns))},
		{LimitInputTokens, l.MaxInputTokens, s.usage.InputTokens},
		{LimitOutputTokens, l.MaxOutputTokens, s.usage.OutputTokens},
		{LimitTotalTokens, l.MaxTotalTokens, s.usage.InputTokens + s.usage.OutputTokens},
		{LimitContextTokens, l.MaxContextTokens, s.lastContext},
	} {
		if limit.limit != nil && limit.value >= *limit.limit {
			return limit.name
		}
	}
	return ""
}

// durationEnd returns when the session's duration ends. It reports false if it never does, does not yet count, or has ended.
func (s *Session) durationEnd() (end time.Time, ok bool) {
	if s.spec.Limits.MaxDuration == nil || s.firstCallAt.IsZero() || s.durationOver {
		return time.Time{}, false
	}
	return s.firstCallAt.Add(*s.spec.Limits.MaxDuration), true
}

// endDuration stops the session and cancels its calls if its duration ends now, and reports whether it does.
func (s *Session) endDuration(now time.Time) bool {
	end, ok := s.durationEnd()
	if !ok || now.Before(end) {
		return false
	}
	s.durationOver = true
	s.stop(LimitDuration, true)
	return true
}

// stop keeps the first condition and sends away the calls that wait. With cancel it cancels those in flight too.
func (s *Session) stop(condition string, cancel bool) {
	if s.state == StateActive {
		s.state, s.stopCondition = StateStopped, condition
	}
	s.touch()
	cause := &StoppedError{s.stopCondition}
	for c := range s.calls {
		if cancel || c.phase == callWaiting {
			c.cancel(cause)
		}
	}
}

// matched returns the name of the first stop condition that one of the choices meets.
func matched(conditions []StopCondition, choices []Choice) string {
	for _, condition := range conditions {
		if slices.ContainsFunc(choices, condition.meets) {
			return condition.Name
		}
	}
	return ""
}

func (c *StopCondition) meets(choice Choice) bool {
	switch {
	case c.Hook != nil:
		return false
	case c.TextRegexp != nil:
		return choice.Text != nil && c.TextRegexp.MatchString(choice.Text())
	default:
		return slices.Contains(choice.ToolCalls, c.ToolCall)
	}
}
