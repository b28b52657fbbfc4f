package admin

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

// Summary is a session as it is listed.
type Summary struct {
	ID            string         `json:"id"`
	State         registry.State `json:"state" enum:"active,stopped,ended"`
	StopCondition *string        `json:"stop_condition" doc:"Why it takes no more turns: a limit's name, a rule's name, the reason given to stop; null while it does."`
	EndReason     *string        `json:"end_reason" doc:"Why it ended; null before."`

	Turns        int                            `json:"turns" doc:"Turns recorded."`
	Usage        totalUsage                     `json:"usage"`
	FailedCalls  map[registry.FailureKind]int64 `json:"failed_calls" doc:"Calls that made no turn, by kind."`
	Inflight     int                            `json:"inflight" doc:"Calls at this moment."`
	ModelSeconds float64                        `json:"model_seconds" doc:"Time spent in model calls, parallel ones added up."`

	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at" doc:"When the lease runs out if nothing renews it; null once ended."`
	FirstCallAt *time.Time `json:"first_call_at"`
	LastCallAt  *time.Time `json:"last_call_at"`
	EndedAt     *time.Time `json:"ended_at"`

	WeightVersion versionRange      `json:"weight_version" doc:"The lowest and the highest among the turns: integers by value, before strings, which are compared naturally (step-9 before step-10)."`
	Labels        map[string]string `json:"labels"`
	Metadata      json.RawMessage   `json:"metadata"`

	Server    string              `json:"server" doc:"The server it is on, or was on at its end."`
	Endpoint  endpoint            `json:"endpoint"`
	LastError nullable[callError] `json:"last_error" doc:"The error of the last call that failed."`
}

// totalUsage adds up a session's turns.
type totalUsage struct {
	InputTokens       int64 `json:"input_tokens" doc:"Input, those repeated from turn to turn counted once."`
	OutputTokens      int64 `json:"output_tokens"`
	CachedTokens      int64 `json:"cached_tokens"`
	ReasoningTokens   int64 `json:"reasoning_tokens"`
	BilledInputTokens int64 `json:"billed_input_tokens" doc:"The plain sum of every turn's input."`
}

// versionRange holds null where no turn had a version.
type versionRange struct {
	Min registry.Version `json:"min"`
	Max registry.Version `json:"max"`
}

// endpoint is how a harness reaches the session.
type endpoint struct {
	URL              string `json:"url" example:"https://abc.example.net"`
	Generation       int    `json:"generation" doc:"Counts the endpoints the session has had."`
	OpenAIBaseURL    string `json:"openai_base_url" example:"https://abc.example.net/v1"`
	AnthropicBaseURL string `json:"anthropic_base_url" example:"https://abc.example.net"`
}

// callError says why a call made no turn.
type callError struct {
	Kind    registry.FailureKind `json:"kind" enum:"timeout,rate_limit,auth,client_error,upstream_error,upstream_truncated,connection,client_disconnected,cancelled,aborted,commit_failed"`
	Status  int                  `json:"status" doc:"The HTTP status upstream gave; 0 if it gave none."`
	Message string               `json:"message"`
}

func callErrorOf(e registry.CallError) callError {
	return callError{Kind: e.Kind, Status: e.Status, Message: e.Message}
}

func endpointOf(p registry.Placement) endpoint {
	base := strings.TrimRight(p.URL, "/")
	return endpoint{URL: base, Generation: p.Generation, OpenAIBaseURL: base + "/v1", AnthropicBaseURL: base}
}

func summaryOf(s registry.Summary) Summary {
	out := Summary{
		ID: s.ID, State: s.State, StopCondition: orNull(s.StopCondition), EndReason: orNull(s.EndReason),
		Turns: s.Turns, Usage: totalUsage(s.Usage), FailedCalls: s.FailedCalls,
		Inflight: s.Inflight, ModelSeconds: s.ModelTime.Seconds(),
		CreatedAt: s.CreatedAt, ExpiresAt: orNull(s.ExpiresAt), FirstCallAt: orNull(s.FirstCallAt),
		LastCallAt: orNull(s.LastCallAt), EndedAt: orNull(s.EndedAt),
		WeightVersion: versionRange(s.WeightVersion), Labels: s.Labels, Metadata: s.Metadata,
		Server: s.Placement.Server, Endpoint: endpointOf(s.Placement),
	}
	if s.State == registry.StateEnded {
		out.ExpiresAt = nil
	}
	if s.LastError != nil {
		e := callErrorOf(*s.LastError)
		out.LastError.value = &e
	}
	if out.FailedCalls == nil {
		out.FailedCalls = map[registry.FailureKind]int64{}
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	return out
}

// orNull is nil for the zero value, which JSON shows as null.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// nullable is an object or null; huma has no schema for that.
type nullable[T any] struct{ value *T }

// MarshalJSON gives the object, or null.
func (n nullable[T]) MarshalJSON() ([]byte, error) { return encode(n.value) }

// Schema allows both.
func (nullable[T]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{schemaOf[T](r), {Type: "null"}}}
}
