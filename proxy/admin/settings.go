package admin

import (
	"cmp"
	"encoding/json"

	"github.com/muxproxy/muxproxy/registry"
)

// session is a summary together with the settings it was made under.
type session struct {
	Summary
	Settings
	Warnings []string `json:"warnings" nullable:"false" doc:"Settings that have no effect as the session's upstream is now or as its harness calls, and why: token ids that are captured of an upstream of style openai, say."`
}

// Settings are the rules a session runs under, as they are given out: those it
// was registered with and what was changed since. It is exported because it is
// embedded, see [SessionPath].
type Settings struct {
	Upstream       string                     `json:"upstream"`
	Affinity       string                     `json:"affinity" doc:"The session's id where none was given."`
	Model          *string                    `json:"model" doc:"null leaves the model to the harness."`
	Sampling       map[string]json.RawMessage `json:"sampling"`
	SamplingMode   registry.SamplingMode      `json:"sampling_mode" enum:"override,default"`
	Capture        capture                    `json:"capture" doc:"Only what is captured."`
	Limits         shownLimits                `json:"limits" doc:"Only those that are set."`
	StopConditions []shownCondition           `json:"stop_conditions" nullable:"false"`
	User           *shownHook                 `json:"user" doc:"null when there is none."`
	OnEndpointLoss registry.EndpointLoss      `json:"on_endpoint_loss" enum:"stop,keep"`
	LeaseSeconds   float64                    `json:"lease_seconds"`
}

// shownCondition is a stop condition as it is given out.
type shownCondition struct {
	Name           string   `json:"name"`
	ToolCall       string   `json:"tool_call,omitempty"`
	TextRegexp     string   `json:"text_regexp,omitempty"`
	URL            string   `json:"url,omitempty"`
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	LastError      string   `json:"last_error,omitempty" doc:"Why the URL had no answer when it was asked last; absent once it has answered."`
}

// shownHook is a hook as it is given out.
type shownHook struct {
	URL            string  `json:"url"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
	LastError      string  `json:"last_error,omitempty" doc:"Why the URL had no answer when it was asked last; absent once it has answered."`
}

// shownLimits are limits as they are given out.
type shownLimits struct {
	MaxTurns           *int64   `json:"max_turns,omitempty"`
	MaxInputTokens     *int64   `json:"max_input_tokens,omitempty"`
	MaxOutputTokens    *int64   `json:"max_output_tokens,omitempty"`
	MaxTotalTokens     *int64   `json:"max_total_tokens,omitempty"`
	MaxContextTokens   *int64   `json:"max_context_tokens,omitempty"`
	MaxInflight        *int     `json:"max_inflight,omitempty"`
	RequestsPerSecond  *float64 `json:"requests_per_second,omitempty"`
	MaxDurationSeconds *float64 `json:"max_duration_seconds,omitempty"`
}

func (a *API) sessionOf(s *registry.Session) session {
	return session{summaryOf(s.Summary()), settingsOf(s), a.warnings(s)}
}

func settingsOf(s *registry.Session) Settings {
	spec, failed := s.Spec(), s.HookErrors()
	l := spec.Limits
	out := Settings{
		Upstream: spec.Upstream, Affinity: cmp.Or(spec.Affinity, spec.ID), Model: orNull(spec.Model),
		Sampling: spec.Sampling, SamplingMode: spec.SamplingMode, LeaseSeconds: spec.Lease.Seconds(), Capture: capture(spec.Capture),
		Limits: shownLimits{
			MaxTurns: l.MaxTurns, MaxInputTokens: l.MaxInputTokens, MaxOutputTokens: l.MaxOutputTokens,
			MaxTotalTokens: l.MaxTotalTokens, MaxContextTokens: l.MaxContextTokens,
			MaxInflight: l.MaxInflight, RequestsPerSecond: l.RequestsPerSecond,
		},
		StopConditions: make([]shownCondition, 0, len(spec.StopConditions)),
		OnEndpointLoss: spec.OnEndpointLoss,
	}
	if spec.User != nil {
		out.User = &shownHook{spec.User.URL, spec.User.Budget().Seconds(), failed[""]}
	}
	if l.MaxDuration != nil {
		out.Limits.MaxDurationSeconds = new(l.MaxDuration.Seconds())
	}
	if out.Sampling == nil {
		out.Sampling = map[string]json.RawMessage{}
	}
	for _, c := range spec.StopConditions {
		shown := shownCondition{Name: c.Name, ToolCall: c.ToolCall}
		if c.TextRegexp != nil {
			shown.TextRegexp = c.TextRegexp.String()
		}
		if c.Hook != nil {
			shown.URL, shown.TimeoutSeconds, shown.LastError = c.Hook.URL, new(c.Hook.Budget().Seconds()), failed[c.Name]
		}
		out.StopConditions = append(out.StopConditions, shown)
	}
	return out
}
