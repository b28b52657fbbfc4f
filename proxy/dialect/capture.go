package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// Capture is what muxproxy wants to know of the tokens of an answer.
type Capture struct {
	TokenIDs Engine // as this one gives them
	Logprobs bool
}

// Engine is whose additions to a format an upstream knows.
type Engine int

// The engines. vLLM gives token ids with every answer that asks for them,
// SGLang not in a stream of chat, where it refuses the request.
const (
	NoEngine Engine = iota // gives no token ids
	VLLM
	SGLang
)

// EngineOf is the engine behind an upstream of this style.
func EngineOf(style string) Engine {
	switch style {
	case "vllm":
		return VLLM
	case "sglang":
		return SGLang
	}
	return NoEngine
}

// A capturing collects the edits by which a request asks for tokens.
type capturing struct {
	object rawjson.Object
	edits  []rawjson.Edit // those of the session's overrides, and then its own
	err    error
}

// asks says whether the request asks for what a field stands for.
func (c *capturing) asks(field string) bool {
	yes, _ := rawjson.Bool(edited(c.object, c.edits, field))
	return yes
}

// ask sets a field of which the harness knows nothing.
func (c *capturing) ask(field, value string) bool {
	if c.err == nil {
		c.err = unambiguous(c.object, field)
	}
	c.edits = append(c.edits, rawjson.Edit{Key: field, Value: []byte(value)})
	return true
}

// chat asks for the tokens of a chat completion as far as it does not ask itself.
func (c *capturing) chat(wish Capture, stream bool, added *Added) {
	if wish.Logprobs && !c.asks("logprobs") {
		added.Logprobs = c.ask("logprobs", "true")
	}
	if wish.TokenIDs == NoEngine || wish.TokenIDs == SGLang && stream || c.asks("return_token_ids") {
		return
	}
	added.TokenIDs = c.ask("return_token_ids", "true")
	if wish.TokenIDs == VLLM {
		added.PromptTokenIDs, added.Nulls = true, true
		return
	}
	// What it gives depends on its release: ids by themselves or in meta_info.
	if !c.asks("return_prompt_token_ids") {
		added.PromptTokenIDs = c.ask("return_prompt_token_ids", "true")
	}
	if !c.asks("return_meta_info") {
		added.MetaInfo = c.ask("return_meta_info", "true")
	}
}

// completions asks for the tokens of a text completion as far as it does not ask
// itself. One that echoes its prompt is left alone: vLLM would leave the prompt
// out of the text, and log-probabilities of it cost a prefix cache.
func (c *capturing) completions(wish Capture, added *Added) {
	if c.asks("echo") {
		return
	}
	if logprobs := edited(c.object, c.edits, "logprobs"); wish.Logprobs && (logprobs == nil || rawjson.Kind(logprobs) == 'n') {
		added.Logprobs = c.ask("logprobs", "1")
	}
	if wish.TokenIDs != NoEngine && !c.asks("return_token_ids") {
		added.TokenIDs = c.ask("return_token_ids", "true")
		added.PromptTokenIDs, added.Nulls = true, wish.TokenIDs == VLLM
	}
}

// visible is an answer of choices, or a chunk of one, without the tokens that
// only a asked for. It returns data itself if there is nothing to leave out.
func (a Added) visible(data []byte, more ...rawjson.Edit) []byte {
	object, err := rawjson.ParseObject(data, nil)
	if err != nil {
		return data
	}
	edits := more
	if a.tokens() {
		edits = a.leaveOut(edits, object, false)
		choices, _ := object.Get("choices")
		changed := false
		without := rawjson.Map(choices, func(choice []byte) []byte {
			o, err := rawjson.ParseObject(choice, nil)
			if err != nil {
				return choice
			}
			edits := a.leaveOut(nil, o, true)
			changed = changed || len(edits) > 0
			return o.Apply(edits)
		})
		if changed {
			edits = append(edits, rawjson.Edit{Key: "choices", Value: without})
		}
	}
	if len(edits) == 0 {
		return data
	}
	return object.Apply(edits)
}

// leaveOut adds the edits that free an answer, or one of its choices, of what a
// asked for. Log-probabilities that nobody asks for are null everywhere.
func (a Added) leaveOut(edits []rawjson.Edit, object rawjson.Object, choice bool) []rawjson.Edit {
	for _, member := range object.Members {
		value := object.Src[member.ValueStart:member.ValueEnd]
		null, ours := false, false
		switch string(member.Key) {
		case "prompt_token_ids":
			null, ours = a.Nulls, a.PromptTokenIDs
		case "token_ids":
			null, ours = a.Nulls, a.TokenIDs && choice
		case "logprobs":
			null, ours = true, a.Logprobs && choice
		case "meta_info":
			ours = a.MetaInfo && choice
		}
		switch {
		case !ours, null && rawjson.Kind(value) == 'n':
		case null:
			edits = append(edits, rawjson.Edit{Key: string(member.Key), Value: []byte("null")})
		default:
			edits = append(edits, rawjson.Edit{Key: string(member.Key)})
		}
	}
	return edits
}
