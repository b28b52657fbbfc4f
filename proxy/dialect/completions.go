package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// Completions is the text completions format of the OpenAI API
// (POST /v1/completions), with what vLLM and SGLang add to it: prompts of token
// ids, several at once, and token ids in the answer.
type Completions struct{}

var _ Dialect = Completions{}

// Name implements Dialect.
func (Completions) Name() string { return "completions" }

// ErrorBody implements Dialect.
func (Completions) ErrorBody(e Error) []byte { return openAIBody(e) }

// ErrorEvent implements Dialect.
func (Completions) ErrorEvent(e Error) []byte { return Chat{}.ErrorEvent(e) }

// Parse implements Dialect.
func (Completions) Parse(body []byte, _ Sent) (*Request, error) {
	r, err := parseRequest(body, nil, "", "model", "prompt", "stream", "stream_options", "n", "echo")
	if err != nil {
		return nil, err
	}
	prompt, _ := r.Object.Get("prompt")
	switch kind := rawjson.Kind(prompt); {
	case kind == '"', kind == '[':
	case !given(r.Object, "prompt") && given(r.Object, "prompt_embeds"): // vLLM's
	default:
		return nil, &RequestError{Param: "prompt", Message: "prompt must be a text, token ids, or a list of those"}
	}
	r.choices = completionsChoices(r.Object)
	return r, nil
}

// completionsChoices is how many choices a request asks for: n of each prompt.
// best_of only says out of how many they are chosen.
func completionsChoices(object rawjson.Object) int {
	prompts := 0
	raw, _ := object.Get("prompt")
	for prompt := range rawjson.Elements(raw) {
		if rawjson.Kind(prompt) == '0' {
			break // one prompt of token ids
		}
		prompts++
	}
	return min(max(prompts, 1)*chatChoices(object), maxChoices)
}

// Override implements Dialect. This format has one name for the limit on
// generated tokens.
func (Completions) Override(r *Request, o Overrides) (Added, error) {
	edits, err := o.edits(r.Object, onlyMaxTokens)
	if err != nil {
		return Added{}, err
	}
	usage, added := chatUsage(edited(r.Object, edits, "stream_options"), r.Stream, o.Usage)
	tokens := capturing{object: r.Object, edits: append(edits, usage...)}
	if tokens.completions(o.Capture, &added); tokens.err != nil {
		return Added{}, tokens.err
	}
	r.edit(tokens.edits, added)
	r.choices = completionsChoices(r.Object)
	return added, nil
}

// Conversation implements Dialect. A request of several prompts is none.
func (Completions) Conversation(r *Request) Conversation {
	prompt, _ := r.Object.Get("prompt")
	for first := range rawjson.Elements(prompt) {
		if rawjson.Kind(first) != '0' {
			return Conversation{}
		}
		break
	}
	echo, _ := r.Object.Get("echo")
	echoed, _ := rawjson.Bool(echo)
	return Conversation{text: newText(prompt, echoed)}
}

// Visible implements Dialect.
func (Completions) Visible(answer []byte, added Added) []byte { return Chat{}.Visible(answer, added) }

// Inspect implements Dialect.
func (Completions) Inspect(response []byte) Details { return Chat{}.Inspect(response) }
