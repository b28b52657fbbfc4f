package admin

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
)

// The bodies that the document gives as examples, and that the page puts into
// its forms: each is accepted as it stands. The parameters' examples are in their
// tags; filters have none, because the page would fill them in and so hide sessions.
const (
	exampleSession = `{"id": "gsm8k-0042-a", "labels": {"env": "gsm8k", "group": "42"}, "metadata": {"row": 42},
		"model": "Qwen/Qwen3-8B", "sampling": {"temperature": 1.0, "max_tokens": 2048},
		"limits": {"max_turns": 20, "max_total_tokens": 220000, "max_inflight": 4, "max_duration": "30m"},
		"stop_conditions": [{"name": "submitted", "tool_call": "submit"}]}`
	exampleTemplate = `{"template": {"labels": {"group": "42"}, "limits": {"max_turns": 20}}, "count": 16}`
	examplePatch    = `{"limits": {"max_turns": null, "max_output_tokens": 64000}, "labels": {"phase": "2"}}`
	exampleIDs      = `{"ids": ["gsm8k-0042-a", "gsm8k-0042-b"]}`
	exampleStop     = `{"reason": "step_over", "cancel": true}`
	exampleStopMany = `{"ids": ["gsm8k-0042-a", "gsm8k-0042-b"], "reason": "step_over", "cancel": true}`
	exampleUpstream = `{"replicas": [{"name": "r1", "url": "http://10.0.0.7:8000"}, {"name": "r2", "url": "http://10.0.0.8:8000"}],
		"api_key": "sk-...", "headers": {"X-Org": "me"}, "style": "vllm"}`
	examplePause   = `{"mode": "hold", "inflight": "wait", "timeout": "5m", "on_timeout": "resume"}`
	exampleVersion = `{"weight_version": 17}`
)

const (
	jsonBody       = "application/json"
	mergePatchBody = "application/merge-patch+json"
)

// bodyLike documents a request's body by an example; huma adds the schema. It is
// one of "examples" because the page does not show a lone "example".
func bodyLike(contentType, example string) *huma.RequestBody {
	return &huma.RequestBody{Content: map[string]*huma.MediaType{
		contentType: {Examples: map[string]*huma.Example{"example": {Value: json.RawMessage(example)}}},
	}}
}
