package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// Assemble implements Dialect. As in the other formats values stay raw JSON. An
// input whose pieces do not make JSON, because the generation was cut off in
// it, is left as the block's start had it: empty.
func (Messages) Assemble(stream []byte) ([]byte, error) {
	whole, inputs := &merged{}, &merged{}
	for chunk := range chunks(stream) {
		kind, _ := chunk.Get("type")
		switch string(kind) {
		case `"message_start"`:
			message, _ := chunk.Get("message")
			whole.messagesStart(message)
		case `"content_block_start"`:
			block, _ := chunk.Get("content_block")
			whole.item("content", chunk.Src).accumulateAll(block)
		case `"content_block_delta"`:
			delta, _ := chunk.Get("delta")
			if partial := rawjson.Lookup(delta, "partial_json"); partial != nil {
				inputs.item("content", chunk.Src).accumulate("input", partial)
				continue
			}
			whole.item("content", chunk.Src).messagesDelta(delta)
		case `"message_delta"`:
			whole.messagesEnd(chunk)
		}
	}
	for _, block := range inputs.items("content") {
		input := rawjson.AppendString(nil, block.value.field("input").raw)
		if rawjson.Valid(input) == nil {
			whole.itemAt("content", block.index).replace("input", input)
		}
	}
	return whole.text()
}

func (m *merged) messagesStart(message []byte) {
	for name, value := range rawjson.Fields(message) {
		switch key := string(name); key {
		case "content":
			m.list(key)
		case "usage":
			m.messagesUsage(value)
		default:
			m.once(key, value)
		}
	}
}

// messagesEnd adds what stands beside the delta and the usage of the event
// that ends a message to the message itself.
func (m *merged) messagesEnd(event rawjson.Object) {
	for name, value := range rawjson.Fields(event.Src) {
		switch key := string(name); key {
		case "type":
		case "delta":
			for field, value := range rawjson.Fields(value) {
				m.latest(string(field), value)
			}
		case "usage":
			m.messagesUsage(value)
		default:
			m.latest(key, value)
		}
	}
}

func (m *merged) messagesUsage(usage []byte) {
	for name, value := range rawjson.Fields(usage) {
		m.object("usage").latest(string(name), value)
	}
}

// messagesDelta adds a delta to its block: text, thinking and signatures under
// their own names, a citation to the block's list of them.
func (m *merged) messagesDelta(delta []byte) {
	for name, value := range rawjson.Fields(delta) {
		switch key := string(name); key {
		case "type":
		case "citation":
			m.accumulate("citations", append(append([]byte{'['}, value...), ']'))
		default:
			m.accumulate(key, value)
		}
	}
}
