package scripted

import (
	"encoding/json"
	"strings"
)

// wish is what the built-in scripts read of a request.
type wish struct {
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	N                    int               `json:"n"`
	Logprobs             any               `json:"logprobs"` // true, or of completions a number
	ReturnTokenIDs       bool              `json:"return_token_ids"`
	ReturnPromptTokenIDs bool              `json:"return_prompt_token_ids"`
	ReturnMetaInfo       bool              `json:"return_meta_info"`
	Tools                []json.RawMessage `json:"tools"`
	Messages             []struct {
		Role string `json:"role"`
	} `json:"messages"`
}

// wishOf reads a request; one that does not parse wishes for nothing.
func wishOf(r *Request) wish {
	var w wish
	if json.Unmarshal(r.Body, &w) != nil {
		return wish{}
	}
	return w
}

// suffix is the ending of the fixture that answers w: ".json", ".sse" or "-usage.sse".
func (w wish) suffix() string {
	switch {
	case !w.Stream:
		return ".json"
	case w.StreamOptions.IncludeUsage && w.StreamOptions.ContinuousUsageStats:
		return "-continuous.sse"
	case w.StreamOptions.IncludeUsage:
		return "-usage.sse"
	default:
		return ".sse"
	}
}

// logprobs tells whether log-probabilities are asked for.
func (w wish) logprobs() bool { return w.Logprobs != nil && w.Logprobs != false }

// tokenIDs tells whether token ids are asked for in any way.
func (w wish) tokenIDs() bool { return w.ReturnTokenIDs || w.ReturnPromptTokenIDs || w.ReturnMetaInfo }

// engine is the name of an engine's fixture that answers w, by path and by what of its own is asked for.
func (w wish) engine(folder, path string) string {
	name := folder + "/chat"
	if strings.HasSuffix(path, "/completions") && !strings.HasSuffix(path, "/chat/completions") {
		name = folder + "/completions"
	}
	if w.tokenIDs() {
		name += "-ids"
	}
	if w.logprobs() {
		name += "-logprobs"
	}
	return name + w.suffix()
}

// answersTool tells whether the last message is the result of a tool.
func (w wish) answersTool() bool {
	return len(w.Messages) > 0 && w.Messages[len(w.Messages)-1].Role == "tool"
}

// plain is suffix for a dialect whose stream always tells its usage.
func (w wish) plain() string {
	if w.Stream {
		return ".sse"
	}
	return ".json"
}
