package dialect_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// Every stream assembles into the JSON that its API would have answered.
func TestAssembledStreamIsItsJSON(t *testing.T) {
	for _, name := range []string{
		"openai/chat", "openai/tools", "openai/answer", "openai/refusal", "openai/logprobs", "openai/n2", "vllm/chat", "vllm/chat-ids", "sglang/chat",
	} {
		for _, suffix := range []string{".sse", "-usage.sse"} {
			assembled, err := dialect.Chat{}.Assemble(scripted.Fixture(name + suffix))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var got, want map[string]any
			if err := json.Unmarshal(assembled, &got); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, assembled)
			}
			if err := json.Unmarshal(scripted.Fixture(name+".json"), &want); err != nil {
				t.Fatal(err)
			}
			if suffix == ".sse" {
				delete(want, "usage")
			}
			// What only one of the two forms has, and no message depends on.
			for path, missing := range differences("", got, want) {
				if !tolerated(path) {
					t.Errorf("%s%s: %s %s\n%s", name, suffix, path, missing, assembled)
				}
			}
		}
	}
}

// tolerated are differences between the forms in the APIs themselves: fields of
// one of them, and null where the other has nothing or no text.
func tolerated(path string) bool {
	return strings.HasSuffix(path, " null") || strings.HasPrefix(path, ".obfuscation") || strings.HasPrefix(path, ".metadata")
}

// differences maps the paths at which two values differ to how. Members that are
// null or an empty list on one side and absent on the other end in " null".
func differences(path string, got, want any) map[string]string {
	all := map[string]string{}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return map[string]string{path: fmt.Sprintf("is %v, want an object", got)}
		}
		for key, value := range w {
			maps.Copy(all, differences(path+"."+key, g[key], value))
		}
		for key, value := range g {
			if _, ok := w[key]; !ok {
				all[path+"."+key+nothing(value)] = fmt.Sprintf("is %v, want none", value)
			}
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			all[path+nothing(want)] = fmt.Sprintf("is %v, want %v", got, want)
			return all
		}
		for i := range w {
			maps.Copy(all, differences(fmt.Sprintf("%s[%d]", path, i), g[i], w[i]))
		}
	default:
		if !reflect.DeepEqual(got, want) {
			all[path+nothing(want)] = fmt.Sprintf("is %v, want %v", got, want)
		}
	}
	return all
}

func nothing(value any) string {
	if list, ok := value.([]any); value == nil || ok && len(list) == 0 {
		return " null"
	}
	return ""
}

// Fields that muxproxy does not know are kept, wherever they are.
func TestAssembleKeepsUnknownFields(t *testing.T) {
	for name, test := range map[string]struct{ stream, want string }{
		"top level": {
			`data: {"id":"c","object":"chat.completion.chunk","x":{"y":1.0},"choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}` + "\n\n" +
				`data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],"late":[1]}` + "\n\ndata: [DONE]\n\n",
			`{"id":"c","object":"chat.completion","x":{"y":1.0},"choices":[{"index":0,"message":{"role":"assistant","content":"ab"},"finish_reason":"stop"}],"late":[1]}`,
		},
		"choice and message": {
			`data: {"choices":[{"index":0,"delta":{"think":"a","sig":{"s":"1"}},"stop_reason":null,"token_ids":[1]}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"delta":{"think":"b","sig":{"s":"2"}},"stop_reason":7,"token_ids":[2,3]}]}` + "\n\n",
			`{"choices":[{"index":0,"message":{"think":"ab","sig":{"s":"12"}},"stop_reason":7,"token_ids":[1,2,3]}]}`,
		},
		"tool calls": {
			`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"},"extra":1}]}}]}` + "\n\n" +
				`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"function":{"arguments":"{}"}}]}}]}` + "\n\n",
			`{"choices":[{"index":0,"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra":1},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}}]}`,
		},
		"a pair of surrogates in two deltas": {
			`data: {"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":"\ude00"}}]}` + "\n\n",
			`{"choices":[{"index":0,"message":{"content":"\ud83d\ude00"}}]}`,
		},
		"choices out of order": {
			`data: {"choices":[{"index":1,"delta":{"content":"b"}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n",
			`{"choices":[{"index":0,"message":{"content":"a"}},{"index":1,"message":{"content":"b"}}]}`,
		},
		"null content": {
			`data: {"choices":[{"index":0,"delta":{"content":null}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":null}}]}` + "\n\n",
			`{"choices":[{"index":0,"message":{"content":"a"}}]}`,
		},
		"text in place of a message, as the stream is read": {
			`data: {"object":"chat.completion.chunk","choices":[{"index":0,"text":"a"}]}` + "\n\n" + `data: {"choices":[{"index":0,"text":"b"}]}` + "\n\n",
			`{"object":"chat.completion","choices":[{"index":0,"text":"ab"}]}`,
		},
		"no blank line at the end, comments and junk": {
			": hi\n\ndata: junk\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}`,
			`{"id":"c","choices":[{"index":0,"message":{"content":"a"}}]}`,
		},
	} {
		input := []byte(test.stream)
		got, err := dialect.Chat{}.Assemble(input)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %v\n%s\nwant\n%s", name, err, got, test.want)
		}
		if string(input) != test.stream {
			t.Errorf("%s: the recorded stream was changed to\n%s", name, input)
		}
	}
	for _, nothing := range []string{"", ": a\n\n", "data: [DONE]\n\n", "data: []\n\n"} {
		if got, err := (dialect.Chat{}).Assemble([]byte(nothing)); err == nil {
			t.Errorf("%q assembled to %s", nothing, got)
		}
	}
}

// Token ids and log-probabilities are found in JSON and in what a stream amounts to.
func TestInspectFindsTokenIDs(t *testing.T) {
	assembled, err := dialect.Chat{}.Assemble(scripted.Fixture("vllm/chat-ids.sse"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
		Choices        []struct {
			TokenIDs json.RawMessage `json:"token_ids"`
		}
	}
	if err := json.Unmarshal(scripted.Fixture("vllm/chat-ids.json"), &want); err != nil {
		t.Fatal(err)
	}
	for name, response := range map[string][]byte{"JSON": scripted.Fixture("vllm/chat-ids.json"), "stream": assembled} {
		got := dialect.Chat{}.Inspect(response)
		if string(got.PromptTokenIDs) != string(want.PromptTokenIDs) || len(got.Choices) != 1 {
			t.Fatalf("%s: got %+v", name, got)
		}
		choice := got.Choices[0]
		if string(choice.CompletionTokenIDs) != string(want.Choices[0].TokenIDs) || choice.FinishReason != "stop" || choice.CompletionLogprobs != nil {
			t.Errorf("%s: got %s, %s, %s", name, choice.CompletionTokenIDs, choice.FinishReason, choice.CompletionLogprobs)
		}
	}
	for body, ids := range map[string]string{
		`{"choices":[{"prompt_token_ids":[1,2]}]}`:                         "[1,2]",
		`{"prompt_token_ids":null,"choices":[{"prompt_token_ids":[1,2]}]}`: "[1,2]",
		`{"prompt_token_ids":null,"choices":[]}`:                           "",
		`{"choices":[{"prompt_token_ids":null}]}`:                          "",
		`[]`:       "",
		`not JSON`: "",
	} {
		if got := (dialect.Chat{}).Inspect([]byte(body)); string(got.PromptTokenIDs) != ids {
			t.Errorf("%s: got %s, want %s", body, got.PromptTokenIDs, ids)
		}
	}
	for _, name := range []string{"openai/logprobs.json", "openai/n2.json"} {
		got := dialect.Chat{}.Inspect(scripted.Fixture(name))
		for i, choice := range got.Choices {
			if choice.Index != i || (choice.CompletionLogprobs != nil) != strings.Contains(name, "logprobs") {
				t.Errorf("%s: choice %d is %+v", name, i, choice)
			}
		}
	}
}
