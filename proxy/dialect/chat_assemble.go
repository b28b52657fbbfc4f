package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// Assemble implements Dialect.
func (Chat) Assemble(stream []byte) ([]byte, error) {
	return assembleChoices(stream, []byte(`"chat.completion"`))
}

// assembleChoices merges the chunks of choices into what they amount to, whose
// object is said to be this one unless it is nil. Values stay raw JSON: strings are
// joined inside their quotes, so that even a surrogate pair split over two deltas
// comes out whole, and fields that muxproxy does not know are kept.
func assembleChoices(stream, object []byte) ([]byte, error) {
	whole := &merged{}
	for chunk := range chunks(stream) {
		for _, member := range chunk.Members {
			value := chunk.Src[member.ValueStart:member.ValueEnd]
			switch key := string(member.Key); {
			case key == "object" && object != nil:
				whole.once(key, object)
			case key == "usage":
				whole.latest(key, value)
			case key == "choices":
				for choice := range rawjson.Elements(value) {
					whole.item(key, choice).choice(choice)
				}
			default:
				whole.once(key, value)
			}
		}
	}
	return whole.text()
}

func (m *merged) choice(piece []byte) {
	for name, value := range rawjson.Fields(piece) {
		switch key := string(name); {
		case key == "index":
			m.once(key, value)
		case key == "delta":
			m.object("message").chatDelta(value)
		case key == "text" || rawjson.Kind(value) == '[' || rawjson.Kind(value) == '{':
			m.accumulate(key, value)
		default:
			m.latest(key, value)
		}
	}
}

func (m *merged) chatDelta(delta []byte) {
	for name, value := range rawjson.Fields(delta) {
		switch key := string(name); key {
		case "role", "id", "type", "name":
			m.once(key, value)
		case "index":
		case "tool_calls":
			for call := range rawjson.Elements(value) {
				m.item(key, call).chatDelta(call)
			}
		case "function", "function_call":
			if rawjson.Kind(value) == '{' {
				m.object(key).chatDelta(value)
			}
		default:
			m.accumulate(key, value)
		}
	}
}
