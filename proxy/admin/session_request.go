package admin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

// newSession is the body that registers a session. The tags state the contract.
type newSession struct {
	ID     string `json:"id,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" doc:"The session's name; made here when absent." example:"gsm8k-0042-a"`
	Secret string `json:"secret,omitempty" minLength:"22" maxLength:"512" pattern:"^[A-Za-z0-9._~-]+$" writeOnly:"true" doc:"At least 22 URL-safe characters; made here when absent. With an id of the client's own it makes registering repeatable: the same request answers 200 with the same session."`

	Labels   map[string]string `json:"labels,omitempty" doc:"What lists and bulk calls select by. A key holds no colon."`
	Metadata json.RawMessage   `json:"metadata,omitempty" doc:"Any JSON; given back as it is."`

	Upstream string `json:"upstream,omitempty" doc:"The upstream that calls go to." default:"default"`
	Affinity string `json:"affinity,omitempty" doc:"Sessions of one affinity go to one replica; the id when absent." example:"group-42"`
	Model    string `json:"model,omitempty" doc:"Replaces the model of every request." example:"Qwen/Qwen3-8B"`

	Sampling     map[string]json.RawMessage `json:"sampling,omitempty" doc:"Top-level request fields; max_tokens is written as the dialect's own field."`
	SamplingMode string                     `json:"sampling_mode,omitempty" enum:"override,default" default:"override" doc:"Who wins when the harness sets a sampling field too: override is the session, default is the harness."`

	Capture        capture         `json:"capture,omitzero" doc:"What to ask the upstream for, for the trace alone."`
	Limits         limits          `json:"limits,omitzero"`
	StopConditions []stopCondition `json:"stop_conditions,omitempty" maxItems:"64" nullable:"false" doc:"Rules on each turn; the first that matches stops the session after that turn."`
	User           *hookURL        `json:"user,omitempty" doc:"Plays the harness's user: after each turn without tool calls it is asked for the next messages, inside the same request of the harness. Chat only, one choice."`
	OnEndpointLoss string          `json:"on_endpoint_loss,omitempty" enum:"stop,keep" default:"stop" doc:"What becomes of the session when its endpoint is lost for good: stop stops it with tunnel_lost, keep gives it another endpoint. A direct endpoint (driver none) never is."`

	Lease Duration `json:"lease,omitzero" doc:"The session ends when nothing renews it for so long; the server's default when absent."`
	Wait  Duration `json:"wait,omitzero" doc:"How long to wait for a place on a server; 60s when absent."`
}

// capture is what turns record of their tokens. The harness sees none of it
// unless it asks itself.
type capture struct {
	TokenIDs bool `json:"token_ids,omitempty" doc:"Token ids of prompts and completions, from upstreams of style vllm or sglang; chat and completions."`
	Logprobs bool `json:"logprobs,omitempty" doc:"Log-probabilities of completions; chat and completions."`
}

// limits are those of one session. Absent means none; 0 is a limit like others.
type limits struct {
	MaxTurns          *int64   `json:"max_turns,omitempty" minimum:"0" doc:"Model calls recorded as turns. Exact under parallel calls."`
	MaxInputTokens    *int64   `json:"max_input_tokens,omitempty" minimum:"0" doc:"Input tokens, those repeated from turn to turn counted once."`
	MaxOutputTokens   *int64   `json:"max_output_tokens,omitempty" minimum:"0" doc:"Output tokens."`
	MaxTotalTokens    *int64   `json:"max_total_tokens,omitempty" minimum:"0" doc:"Input and output tokens together."`
	MaxContextTokens  *int64   `json:"max_context_tokens,omitempty" minimum:"0" doc:"The last prompt plus its completion."`
	MaxInflight       *int     `json:"max_inflight,omitempty" minimum:"1" doc:"Calls at the same time; more wait in line."`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty" exclusiveMinimum:"0" doc:"Calls a second, evenly spaced; more wait in line."`
	MaxDuration       Duration `json:"max_duration,omitzero" doc:"From the first model call on; then the session stops and its calls are cancelled."`
}

// hookURL is a URL that muxproxy asks.
type hookURL struct {
	URL     string   `json:"url" minLength:"1" doc:"Asked by POST; its host must be one that MUXPROXY_HOOK_HOSTS allows." example:"http://127.0.0.1:9100/user"`
	Timeout Duration `json:"timeout,omitzero" doc:"How long it may take to answer; 60s when absent."`
}

// stopCondition is a rule on the text or the tool calls of a turn, or a URL that
// decides.
type stopCondition struct {
	Name       string   `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" doc:"What the session's stop_condition will say. Not the name of a limit or of a built-in condition: admin_stop, context_length, tunnel_lost, user_completed." example:"submitted"`
	ToolCall   string   `json:"tool_call,omitempty" doc:"Matches a call of the tool of this name." example:"submit"`
	TextRegexp string   `json:"text_regexp,omitempty" maxLength:"4096" doc:"Matches in the text of a choice; RE2 syntax." example:"I cannot (solve|do) this"`
	URL        string   `json:"url,omitempty" doc:"Asked by POST after each turn; its host must be one that MUXPROXY_HOOK_HOSTS allows." example:"http://127.0.0.1:9100/stop"`
	Timeout    Duration `json:"timeout,omitzero" doc:"How long the URL may take to answer; 60s when absent."`
}

// Resolve checks what a schema cannot say. It runs together with the schema's
// checks, so that one answer names everything that is wrong.
func (s *newSession) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	faults := s.Lease.checkPositive(at.With("lease"))
	faults = append(faults, s.Wait.check(at.With("wait"))...)
	faults = append(faults, s.Limits.check(at.With("limits"))...)
	faults = append(faults, checkLabels(s.Labels, at.With("labels"))...)
	faults = append(faults, checkSampling(s.Sampling, at.With("sampling"))...)
	if s.User != nil {
		faults = append(faults, checkChoices(s.Sampling, at.With("sampling"))...)
		faults = append(faults, s.User.Timeout.checkPositive(at.With("user.timeout"))...)
	}
	names := make(map[string]bool, len(s.StopConditions))
	for i, c := range s.StopConditions {
		here := fmt.Sprintf("%s[%d]", at.With("stop_conditions"), i)
		faults = append(faults, c.check(here)...)
		if names[c.Name] {
			faults = append(faults, FieldError{"expected a name that no other condition has", here + ".name"})
		}
		names[c.Name] = true
	}
	return asErrors(faults)
}

func (l *limits) check(at string) []FieldError {
	return l.MaxDuration.checkPositive(at + ".max_duration")
}

func (c *stopCondition) check(at string) []FieldError {
	ways := 0
	for _, way := range []string{c.ToolCall, c.TextRegexp, c.URL} {
		if way != "" {
			ways++
		}
	}
	if ways != 1 {
		return []FieldError{{"expected exactly one of tool_call, text_regexp and url", at}}
	}
	if c.URL == "" && c.Timeout.set {
		return []FieldError{{"expected only with a url", at + ".timeout"}}
	}
	if faults := c.Timeout.checkPositive(at + ".timeout"); faults != nil {
		return faults
	}
	if _, err := regexp.Compile(c.TextRegexp); err != nil {
		return []FieldError{{"expected a regular expression: " + err.Error(), at + ".text_regexp"}}
	}
	return nil
}

func checkLabels(labels map[string]string, at string) (faults []FieldError) {
	for key := range labels {
		if key == "" || strings.Contains(key, ":") {
			faults = append(faults, FieldError{"expected a key that is not empty and has no colon", at + "." + key})
		}
	}
	return faults
}

// checkSampling refuses the fields that are the conversation itself, or that
// would change the form of the answer behind the harness's back.
func checkSampling(sampling map[string]json.RawMessage, at string) (faults []FieldError) {
	for key := range sampling {
		switch key {
		case "model":
			faults = append(faults, FieldError{"expected the model in the session's own field", at + ".model"})
		case "messages", "prompt", "input", "system", "instructions", "stream", "background", "conversation", "previous_response_id", "":
			faults = append(faults, FieldError{"not a sampling field", at + "." + key})
		}
	}
	return faults
}

// checkChoices refuses more choices than one, of which a simulated user could answer
// only the first.
func checkChoices(sampling map[string]json.RawMessage, at string) []FieldError {
	if n, ok := sampling["n"]; ok && string(n) != "1" && !isNull(n) {
		return []FieldError{{"expected 1: a session with a simulated user takes one choice", at + ".n"}}
	}
	return nil
}

func asErrors(faults []FieldError) []error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errs
}

// spec is the body in the registry's terms. It has been validated.
func (s *newSession) spec() (registry.Spec, error) {
	spec := registry.Spec{
		ID: s.ID, Secret: s.Secret, Labels: s.Labels, Metadata: s.Metadata,
		Upstream: s.Upstream, Affinity: s.Affinity, Model: s.Model,
		Sampling: s.Sampling, SamplingMode: registry.SamplingMode(s.SamplingMode), Capture: registry.Capture(s.Capture),
		Limits: s.Limits.spec(), OnEndpointLoss: registry.EndpointLoss(s.OnEndpointLoss), Lease: s.Lease.d,
	}
	for _, c := range s.StopConditions {
		condition := registry.StopCondition{Name: c.Name, ToolCall: c.ToolCall}
		if c.TextRegexp != "" {
			re, err := regexp.Compile(c.TextRegexp)
			if err != nil {
				return registry.Spec{}, fmt.Errorf("compile stop condition %s: %w", c.Name, err)
			}
			condition.TextRegexp = re
		}
		if c.URL != "" {
			condition.Hook = &registry.Hook{URL: c.URL, Timeout: c.Timeout.d}
		}
		spec.StopConditions = append(spec.StopConditions, condition)
	}
	if s.User != nil {
		spec.User = &registry.Hook{URL: s.User.URL, Timeout: s.User.Timeout.d}
	}
	var err error
	spec.Digest, err = s.digest()
	return spec, err
}

func (l *limits) spec() registry.Limits {
	return registry.Limits{
		MaxTurns: l.MaxTurns, MaxInputTokens: l.MaxInputTokens, MaxOutputTokens: l.MaxOutputTokens,
		MaxTotalTokens: l.MaxTotalTokens, MaxContextTokens: l.MaxContextTokens,
		MaxInflight: l.MaxInflight, RequestsPerSecond: l.RequestsPerSecond, MaxDuration: l.MaxDuration.pointer(),
	}
}

func limitsOf(l registry.Limits) limits {
	out := limits{
		MaxTurns: l.MaxTurns, MaxInputTokens: l.MaxInputTokens, MaxOutputTokens: l.MaxOutputTokens,
		MaxTotalTokens: l.MaxTotalTokens, MaxContextTokens: l.MaxContextTokens,
		MaxInflight: l.MaxInflight, RequestsPerSecond: l.RequestsPerSecond,
	}
	if l.MaxDuration != nil {
		out.MaxDuration = durationOf(*l.MaxDuration)
	}
	return out
}

// digest tells a repeated request from another one of the same id. The secret
// is compared by the registry, and how long the client waits does not matter.
func (s *newSession) digest() ([32]byte, error) {
	c := *s
	c.Secret, c.Wait = "", Duration{}
	raw, err := encode(c)
	if err != nil {
		return [32]byte{}, fmt.Errorf("encode session for its digest: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// patience is how long the client waits for a place.
func (s *newSession) patience(otherwise time.Duration) time.Duration {
	if s.Wait.set {
		return s.Wait.d
	}
	return otherwise
}
