package dialect

import (
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// finishAborted is how SGLang and vLLM end a choice whose generation was
// aborted, for instance to update the weights.
const finishAborted = "abort"

// Response implements Dialect.
func (Chat) Response(body []byte, c Conversation) (Result, error) {
	f := newFingerprint()
	defer f.free()
	object, err := f.parse(body)
	if err != nil {
		return Result{}, err
	}
	return choicesOf(object, func(raw rawChoice, choice *registry.Choice) {
		var message said
		at := rawjson.Walk(raw.message)
		choice.Continuation = c.Continued(f.chatMessage(&at, &message))
		content := message.content
		choice.Text = func() string {
			text, _ := rawjson.String(content)
			return text
		}
		choice.ToolCalls = message.called
	}), nil
}

// A rawChoice is what is read of a choice, as it stands there.
type rawChoice struct {
	index, finish, message, text, tokenIDs, promptTokenIDs []byte
}

func rawChoiceAt(at *rawjson.Cursor) (raw rawChoice) {
	for key := range at.Fields {
		switch string(key) {
		case "index":
			raw.index = at.Value()
		case "finish_reason":
			raw.finish = at.Value()
		case "message":
			raw.message = at.Value()
		case "text":
			raw.text = at.Value()
		case "token_ids":
			raw.tokenIDs = at.Value()
		case "prompt_token_ids":
			raw.promptTokenIDs = at.Value()
		}
	}
	return raw
}

// choicesOf reads an answer of choices. read adds to each what it says.
func choicesOf(object rawjson.Object, read func(raw rawChoice, choice *registry.Choice)) Result {
	var result Result
	if raw, ok := object.Get("model"); ok {
		result.Model, _ = rawjson.String(raw)
	}
	if raw, ok := object.Get("usage"); ok {
		result.Usage = chatUsageOf(raw)
	}
	ids, _ := object.Get("prompt_token_ids")
	result.PromptTokenIDs = notNull(ids)
	choices, ok := object.Get("choices")
	if result.Failure = chatFailure(object); result.Failure == nil && !ok {
		result.Failure = &Failure{Message: "the answer has no choices"}
	}
	at := rawjson.Walk(choices)
	for range at.Elements {
		raw := rawChoiceAt(&at)
		index, _ := rawjson.Int(raw.index)
		result.Choices = append(result.Choices, registry.Choice{Index: int(index), FinishReason: word(raw.finish)})
		choice := &result.Choices[len(result.Choices)-1]
		if result.PromptTokenIDs == nil {
			result.PromptTokenIDs = notNull(raw.promptTokenIDs)
		}
		read(raw, choice)
		result.Aborted = result.Aborted || choice.FinishReason == finishAborted
	}
	return result
}

// Visible implements Dialect.
func (Chat) Visible(answer []byte, added Added) []byte {
	if !added.tokens() {
		return answer
	}
	return added.visible(answer)
}

// Inspect implements Dialect.
func (Chat) Inspect(response []byte) Details {
	object, err := rawjson.ParseObject(response, nil)
	if err != nil {
		return Details{}
	}
	var details Details
	ids, _ := object.Get("prompt_token_ids")
	details.PromptTokenIDs = notNull(ids)
	choices, _ := object.Get("choices")
	for raw := range rawjson.Elements(choices) {
		index, _ := rawjson.Int(rawjson.Lookup(raw, "index"))
		if details.PromptTokenIDs == nil {
			details.PromptTokenIDs = notNull(rawjson.Lookup(raw, "prompt_token_ids"))
		}
		details.Choices = append(details.Choices, ChoiceDetails{
			Index:              int(index),
			FinishReason:       word(rawjson.Lookup(raw, "finish_reason")),
			CompletionTokenIDs: completionTokenIDs(raw),
			CompletionLogprobs: notNull(rawjson.Lookup(raw, "logprobs")),
		})
	}
	return details
}

// completionTokenIDs are the ids of a choice: by themselves, or as SGLang had
// them first, beside the log-probabilities in meta_info.
func completionTokenIDs(choice []byte) []byte {
	if ids := notNull(rawjson.Lookup(choice, "token_ids")); ids != nil {
		return ids
	}
	tokens := rawjson.Lookup(rawjson.Lookup(choice, "meta_info"), "output_token_logprobs")
	if rawjson.Kind(tokens) != '[' {
		return nil
	}
	var ids [][]byte
	for token := range rawjson.Elements(tokens) { // [log-probability, id, text]
		i := 0
		for value := range rawjson.Elements(token) {
			if i == 1 {
				ids = append(ids, value)
			}
			i++
		}
	}
	return joinItems(ids)
}

func notNull(raw []byte) []byte {
	if rawjson.Kind(raw) == 'n' {
		return nil
	}
	return raw
}
