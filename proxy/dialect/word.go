package dialect

import "github.com/muxproxy/muxproxy/proxy/rawjson"

// word is a raw string, "" for other values, without memory of its own if it is one
// of those that every request or answer has.
func word(raw []byte) string {
	switch string(raw) {
	case `"stop"`:
		return "stop"
	case `"tool_calls"`:
		return "tool_calls"
	case `"length"`:
		return "length"
	case `"end_turn"`:
		return "end_turn"
	case `"completed"`:
		return "completed"
	case `"text"`:
		return "text"
	case `"thinking"`:
		return "thinking"
	case `"tool_use"`:
		return "tool_use"
	case `"tool_result"`:
		return "tool_result"
	case `"message"`:
		return "message"
	case `"reasoning"`:
		return "reasoning"
	case `"function_call"`:
		return "function_call"
	case `"function_call_output"`:
		return "function_call_output"
	}
	other, _ := rawjson.String(raw)
	return other
}
