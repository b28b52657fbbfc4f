package dialect

import (
	"cmp"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// Response implements Dialect.
func (Responses) Response(body []byte, c Conversation) (Result, error) {
	if _, err := rawjson.ParseObject(body, nil); err != nil {
		return Result{}, err
	}
	return responsesResult(body, nil, c), nil
}

// responsesResult reads a response object. items, if there are any, are its
// output where the object has none.
func responsesResult(response []byte, items [][]byte, c Conversation) Result {
	var status, output, incomplete []byte
	var result Result
	for key, value := range rawjson.Fields(response) {
		switch string(key) {
		case "id":
			result.identify(value)
		case "model":
			result.Model, _ = rawjson.String(value)
		case "usage":
			result.Usage = responsesUsageOf(value)
		case "status":
			status = value
		case "output":
			output = value
		case "incomplete_details":
			incomplete = rawjson.Lookup(value, "reason")
		}
	}
	finish := word(status)
	result.Aborted = finish == "cancelled"
	if result.Failure = responsesFailure(response, finish, output); result.Failure != nil {
		return result
	}
	if reason, ok := rawjson.String(incomplete); ok {
		finish = reason
	}
	if empty(rawjson.Elements(output)) {
		output = joinItems(items)
	}
	result.Choices = []registry.Choice{result.choice(output, cmp.Or(finish, "completed"), c)}
	return result
}

// choice reads the items of an output.
func (r *Result) choice(output []byte, finish string, c Conversation) registry.Choice {
	choice := registry.Choice{FinishReason: finish}
	f := newFingerprint()
	defer f.free()
	var text []byte
	for item := range rawjson.Elements(output) {
		r.identify(rawjson.Lookup(item, "id"))
		if f.responsesItem(item) {
			c.Prefixes = append(slices.Clip(c.Prefixes), c.Continued(f.sum()))
		}
		switch itemType(item) {
		case "message":
			for part := range rawjson.Elements(rawjson.Lookup(item, "content")) {
				if t := rawjson.Lookup(part, "text"); rawjson.Kind(t) == '"' {
					text = rawjson.AppendString(text, t)
				}
			}
		case "function_call", "custom_tool_call":
			name, _ := rawjson.String(rawjson.Lookup(item, "name"))
			choice.ToolCalls = append(choice.ToolCalls, name)
		}
	}
	if n := len(c.Prefixes); n > 0 {
		choice.Continuation = c.Prefixes[n-1]
	}
	choice.Text = func() string { return string(text) }
	return choice
}

// identify notes an id.
func (r *Result) identify(raw []byte) {
	if id, ok := rawjson.String(raw); ok && id != "" && !slices.Contains(r.IDs, id) {
		r.IDs = append(r.IDs, id)
	}
}

// responsesFailure finds an error in the place of an answer.
func responsesFailure(response []byte, status string, output []byte) *Failure {
	object, err := rawjson.ParseObject(response, nil)
	if err != nil {
		return &Failure{Message: "the response is no object"}
	}
	if failure := chatFailure(object); failure != nil {
		return failure
	}
	switch {
	case status == "failed", status == "queued", status == "in_progress":
		return &Failure{Message: "the response is " + status}
	case output == nil:
		return &Failure{Message: "the answer has no output"}
	}
	return nil
}

// responsesUsageOf reads the usage of a response, whose input tokens have the
// cached ones in them.
func responsesUsageOf(raw []byte) *registry.Usage {
	if rawjson.Kind(raw) != '{' {
		return nil
	}
	count := func(object []byte, key string) int64 {
		n, _ := rawjson.Int(rawjson.Lookup(object, key))
		return n
	}
	return &registry.Usage{
		InputTokens:     count(raw, "input_tokens"),
		OutputTokens:    count(raw, "output_tokens"),
		CachedTokens:    count(rawjson.Lookup(raw, "input_tokens_details"), "cached_tokens"),
		ReasoningTokens: count(rawjson.Lookup(raw, "output_tokens_details"), "reasoning_tokens"),
	}
}

func joinItems(items [][]byte) []byte {
	b := []byte{'['}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return append(b, ']')
}

// Visible implements Dialect. Nothing is added to requests of this format.
func (Responses) Visible(answer []byte, _ Added) []byte { return answer }

// Inspect implements Dialect.
func (Responses) Inspect(response []byte) Details {
	output := rawjson.Lookup(response, "output")
	if output == nil {
		return Details{}
	}
	finish, _ := rawjson.String(rawjson.Lookup(rawjson.Lookup(response, "incomplete_details"), "reason"))
	status, _ := rawjson.String(rawjson.Lookup(response, "status"))
	choice := ChoiceDetails{FinishReason: cmp.Or(finish, status)}
	for item := range rawjson.Elements(output) {
		for part := range rawjson.Elements(rawjson.Lookup(item, "content")) {
			if logprobs := rawjson.Lookup(part, "logprobs"); filled(logprobs) {
				choice.CompletionLogprobs = joinArrays(choice.CompletionLogprobs, logprobs)
			}
		}
	}
	return Details{Choices: []ChoiceDetails{choice}}
}
