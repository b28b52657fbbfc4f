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

// Assemble implements Dialect.
func (Completions) Assemble(stream []byte) ([]byte, error) {
	whole := &merged{}
	for chunk := range chunks(stream) {
		whole.completionsChunk(chunk)
	}
	return whole.text()
}

func (m *merged) completionsChunk(object rawjson.Object) {
	for _, member := range object.Members {
		value := object.Src[member.ValueStart:member.ValueEnd]
		switch key := string(member.Key); key {
		case "usage":
			m.latest(key, value)
		case "choices":
			for choice := range rawjson.Elements(value) {
				m.item(key, choice).completionsChoice(choice)
			}
		default:
			m.once(key, value)
		}
	}
}

func (m *merged) completionsChoice(choice []byte) {
	for name, value := range rawjson.Fields(choice) {
		switch key := string(name); {
		case key == "index":
			m.once(key, value)
		case key == "text" || rawjson.Kind(value) == '[' || rawjson.Kind(value) == '{':
			m.accumulate(key, value)
		default:
			m.latest(key, value)
		}
	}
}
