package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// Assemble implements Dialect. Values stay raw JSON: strings are joined inside
// their quotes, so that even a surrogate pair split over two deltas comes out
// whole, and fields that muxproxy does not know are kept.
func (Chat) Assemble(stream []byte) ([]byte, error) {
	whole := &merged{}
	for chunk := range chunks(stream) {
		whole.chatChunk(chunk)
	}
	return whole.text()
}

func (m *merged) chatChunk(object rawjson.Object) {
	for _, member := range object.Members {
		value := object.Src[member.ValueStart:member.ValueEnd]
		switch key := string(member.Key); key {
		case "object":
			m.once(key, []byte(`"chat.completion"`))
		case "usage":
			m.latest(key, value)
		case "choices":
			for choice := range rawjson.Elements(value) {
				m.item(key, choice).chatChoice(choice)
			}
		default:
			m.once(key, value)
		}
	}
}

func (m *merged) chatChoice(choice []byte) {
	for name, value := range rawjson.Fields(choice) {
		key := string(name)
		switch {
		case key == "index":
			m.once(key, value)
		case key == "delta":
			m.object("message").chatDelta(value)
		case rawjson.Kind(value) == '[' || rawjson.Kind(value) == '{':
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
