package dialect_test

import (
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

func responsesPrefixes(t *testing.T, input string) []uint64 {
	t.Helper()
	return dialect.Responses{}.Conversation(parseResponses(t, `{"input":`+input+`}`)).Prefixes
}

func TestResponsesConversationIsTheSameHoweverItIsSerialised(t *testing.T) {
	for _, tt := range []struct{ name, a, b string }{
		{"input as a string or an item", `"hi"`, `[{"role":"user","content":"hi"}]`},
		{"type and parts", `[{"role":"user","content":"hi"}]`, `[{"content":[{"text":"hi","type":"input_text"}],"role":"user","type":"message"}]`},
		{
			"ids and status", `[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"a"}]}]`,
			`[{"role":"assistant","content":"a"}]`,
		},
		{
			"arguments", `[{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"a\": 1}"}]`,
			`[{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1.0}","status":"completed"}]`,
		},
		{"reasoning", `[{"type":"reasoning","id":"rs_1","summary":[]},{"role":"user","content":"hi"}]`, `[{"role":"user","content":"hi"}]`},
		{
			"output in parts", `[{"type":"function_call_output","call_id":"c","output":"ok"}]`,
			`[{"type":"function_call_output","id":"x","call_id":"c","output":[{"type":"input_text","text":"ok"}]}]`,
		},
		{
			"items of other types", `[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"a","type":"search"}}]`,
			`[{"type":"web_search_call","action":{"type":"search","query":"a"}}]`,
		},
	} {
		if a, b := responsesPrefixes(t, tt.a), responsesPrefixes(t, tt.b); len(a) != 1 || !slices.Equal(a, b) {
			t.Errorf("%s: %v and %v differ", tt.name, a, b)
		}
	}
}

func TestResponsesConversationsThatDifferAreDifferent(t *testing.T) {
	seen := map[uint64]string{}
	for _, input := range []string{
		`"hi"`, `"ho"`, `[{"role":"assistant","content":"hi"}]`, `[{"role":"developer","content":"hi"}]`,
		`[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`,
		`[{"type":"function_call","call_id":"d","name":"f","arguments":"{}"}]`,
		`[{"type":"function_call","call_id":"c","name":"g","arguments":"{}"}]`,
		`[{"type":"function_call","call_id":"c","name":"f","arguments":"[]"}]`,
		`[{"type":"function_call_output","call_id":"c","output":"{}"}]`,
		`[{"type":"custom_tool_call_output","call_id":"c","output":"{}"}]`,
		`[{"type":"item_reference","id":"msg_1"}]`, `[{"id":"msg_2"}]`,
		`[{"type":"web_search_call","action":{"query":"a"}}]`, `[{"type":"file_search_call","action":{"query":"a"}}]`,
		`[{"role":"user","content":[{"type":"input_image","image_url":"a"}]}]`, `[{"role":"user","content":[{"type":"input_image","image_url":"b"}]}]`,
	} {
		links := responsesPrefixes(t, input)
		if other, ok := seen[last(links)]; ok {
			t.Errorf("%s and %s are one conversation", input, other)
		}
		seen[last(links)] = input
	}
	plain := dialect.Responses{}.Conversation(parseResponses(t, `{"input":"hi"}`))
	after := dialect.Responses{}.Conversation(parseResponses(t, `{"input":"hi","previous_response_id":"resp_1"}`))
	if last(plain.Prefixes) == last(after.Prefixes) {
		t.Error("what goes on with a response is the same conversation as what does not")
	}
}

func TestResponsesOutputIsContinuedByItsItems(t *testing.T) {
	r := parseResponses(t, `{"input":"weather?"}`)
	result, err := dialect.Responses{}.Response([]byte(`{"id":"resp_1","status":"completed","output":[
		{"type":"reasoning","id":"rs_1","summary":[]},
		{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"let me see"}]},
		{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{ }"}]}`), dialect.Responses{}.Conversation(r))
	if err != nil || len(result.Choices) != 1 {
		t.Fatal(result, err)
	}
	for next, continues := range map[string]bool{
		`[{"role":"user","content":"weather?"},{"role":"assistant","content":"let me see"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}]`: true,
		`[{"role":"user","content":"weather?"},{"role":"assistant","content":"let me see"},{"role":"user","content":"well?"}]`:                                                                                             false,
		`[{"role":"user","content":"time?"},{"role":"assistant","content":"let me see"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`:                                                               false,
	} {
		if got := slices.Contains(responsesPrefixes(t, next), result.Choices[0].Continuation); got != continues {
			t.Errorf("%s continues the turn: %v, want %v", next, got, continues)
		}
	}
}
