package dialect

import (
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// Response implements Dialect.
func (Completions) Response(body []byte, c Conversation) (Result, error) {
	f := newFingerprint()
	defer f.free()
	object, err := f.parse(body)
	if err != nil {
		return Result{}, err
	}
	return choicesOf(object, func(raw rawChoice, choice *registry.Choice) {
		c.complete(choice, rawjson.AppendString(nil, raw.text), raw.tokenIDs)
	}), nil
}

// complete adds to a choice what its text and token ids say.
func (c Conversation) complete(choice *registry.Choice, text, ids []byte) {
	if c.text != nil {
		choice.Continuation, choice.TextLength = c.text.continued(text, ids)
	}
	choice.Text = func() string { return string(c.text.generated(text)) }
}

// completionsStream follows the chunks of a streamed completion.
type completionsStream struct{ chatStream }

// Stream implements Dialect.
func (Completions) Stream(r *Request, added Added, c Conversation) Stream {
	return &completionsStream{chatStream{added: added, conversation: c, expected: r.choices}}
}

// Result implements Stream.
func (s *completionsStream) Result() Result {
	s.read()
	result := Result{Model: s.model, Usage: s.usage, PromptTokenIDs: s.prompt, Failure: s.failure, Aborted: s.aborted}
	for i := range s.choices {
		c := &s.choices[i]
		choice := registry.Choice{Index: c.index, FinishReason: c.finish}
		s.conversation.complete(&choice, c.text, c.tokenIDs)
		result.Choices = append(result.Choices, choice)
	}
	return result
}

// Assemble implements Dialect. A chunk is called what the whole is.
func (Completions) Assemble(stream []byte) ([]byte, error) { return assembleChoices(stream, nil) }
