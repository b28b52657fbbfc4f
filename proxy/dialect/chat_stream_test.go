package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/sse"
)

// split divides a stream into events; what follows the last one is an event too.
func split(stream []byte) [][]byte {
	var all [][]byte
	var scanner sse.Scanner
	for len(stream) > 0 {
		n := scanner.Next(stream)
		if n == 0 {
			n = len(stream)
		}
		all = append(all, stream[:n])
		stream = stream[n:]
	}
	return all
}

// play feeds a stream and gives what of it went out, in all and before the end was held.
func play(s dialect.Stream, stream []byte) (out, before string) {
	var whole, sent bytes.Buffer
	for _, event := range split(stream) {
		action, replacement := s.Event(event)
		switch action {
		case dialect.Forward:
			sent.Write(event)
			whole.Write(event)
		case dialect.Replace:
			sent.Write(replacement)
			whole.Write(replacement)
		case dialect.Hold:
			whole.Write(event)
		case dialect.Drop, dialect.Abort:
		}
	}
	return whole.String(), sent.String()
}

func stream(t *testing.T, extra string, added dialect.Added) dialect.Stream {
	t.Helper()
	r := parse(t, `{`+hi+extra+`}`)
	return dialect.Chat{}.Stream(r, added, dialect.Chat{}.Conversation(r))
}

// The stream of a fixture and its JSON twin are the same answer.
func TestStreamAndJSONAgree(t *testing.T) {
	for name, extra := range map[string]string{
		"openai/chat": "", "openai/tools": "", "openai/answer": "", "openai/refusal": "", "openai/logprobs": "", "openai/n2": `,"n":2`,
		"vllm/chat": "", "vllm/chat-ids": "", "sglang/chat": "",
	} {
		r := parse(t, `{`+hi+extra+`}`)
		conversation := dialect.Chat{}.Conversation(r)
		want, err := dialect.Chat{}.Response(scripted.Fixture(name+".json"), conversation)
		if err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{".sse", "-usage.sse"} {
			s := dialect.Chat{}.Stream(r, dialect.Added{}, conversation)
			play(s, scripted.Fixture(name+suffix))
			got := s.Result()
			if !s.Complete() || !s.Terminal() || got.Failure != nil || got.Aborted {
				t.Errorf("%s%s is not whole: %+v", name, suffix, got)
			}
			if got.Model != want.Model || !reflect.DeepEqual(comparableChoices(got.Choices), comparableChoices(want.Choices)) {
				t.Errorf("%s%s: got %s %+v\nwant %s %+v", name, suffix, got.Model, got.Choices, want.Model, want.Choices)
			}
			if suffix == "-usage.sse" && (got.Usage == nil || want.Usage == nil || *got.Usage != *want.Usage) {
				t.Errorf("%s%s: usage is %+v, want %+v", name, suffix, got.Usage, want.Usage)
			}
		}
	}
}

// An aborted stream holds its finish reason back, an aborted JSON says so.
func TestAbortIsSeenInStreamAndJSON(t *testing.T) {
	s := stream(t, "", dialect.Added{Usage: true})
	actions := []dialect.Action{}
	for _, event := range split(scripted.Fixture("sglang/abort.sse"))[:3] {
		action, _ := s.Event(event)
		actions = append(actions, action)
	}
	if actions[2] != dialect.Abort || s.Complete() || !s.Result().Aborted {
		t.Errorf("actions are %v, complete is %v", actions, s.Complete())
	}
	result, err := dialect.Chat{}.Response(scripted.Fixture("sglang/abort.json"), dialect.Conversation{})
	if err != nil || !result.Aborted {
		t.Errorf("got %+v, %v", result, err)
	}
}

// What muxproxy asked for is taken out, which leaves what would have come unasked.
func TestStreamWithoutTheUsageThatWasAdded(t *testing.T) {
	for name, extra := range map[string]string{
		"openai/chat": "", "openai/tools": "", "openai/answer": "", "openai/refusal": "", "openai/logprobs": "", "openai/n2": `,"n":2`,
		"vllm/chat": "", "vllm/chat-ids": "",
	} {
		s := stream(t, extra, dialect.Added{Usage: true})
		if got, _ := play(s, scripted.Fixture(name+"-usage.sse")); got != string(scripted.Fixture(name+".sse")) {
			t.Errorf("%s: got\n%s", name, got)
		}
		if s.Result().Usage == nil {
			t.Errorf("%s: the usage was not read", name)
		}
		same := stream(t, extra, dialect.Added{})
		if got, _ := play(same, scripted.Fixture(name+"-usage.sse")); got != string(scripted.Fixture(name+"-usage.sse")) {
			t.Errorf("%s: who asked for usage got\n%s", name, got)
		}
	}
}

// The usage beside a choice was not asked for by anybody, and stays.
func TestUsageBesideAChoiceStays(t *testing.T) {
	event := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\n"
	s := stream(t, "", dialect.Added{Usage: true})
	if got, _ := play(s, []byte(event)); got != event {
		t.Errorf("got %q", got)
	}
	if u := s.Result().Usage; u == nil || u.InputTokens != 3 || u.OutputTokens != 4 {
		t.Errorf("usage is %+v", u)
	}
}

func TestCompleteMeansDoneOrEveryFinishReason(t *testing.T) {
	text := func(index int, finish string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{"content":"x"},"finish_reason":%s}]}`+"\n\n", index, finish)
	}
	const done, failure = "data: [DONE]\n\n", "data: {\"error\":{\"message\":\"no\"}}\n\n"
	for _, test := range []struct {
		name, extra, stream      string
		complete, terminal, fail bool
	}{
		{name: "nothing"},
		{name: "comments", stream: ": a\n\n: b\n\n"},
		{name: "text", stream: text(0, "null")},
		{name: "empty finish reason", stream: text(0, `""`)},
		{name: "finish reason", stream: text(0, `"stop"`), complete: true},
		{name: "any finish reason", stream: text(0, `"insufficient_system_resource"`), complete: true},
		{name: "done", stream: text(0, "null") + done, complete: true, terminal: true},
		{name: "done without space", stream: "data:[DONE]\n\n", complete: true, terminal: true},
		{name: "done with spaces", stream: "data:  [DONE] \n\n", complete: true, terminal: true},
		{name: "done with an event name", stream: "event: done\ndata: [DONE]\n\n", complete: true, terminal: true},
		{name: "done in a comment", stream: ": [DONE]\n\n"},
		{name: "done as an event name", stream: "event: [DONE]\n\n"},
		{name: "one of two", extra: `,"n":2`, stream: text(0, `"stop"`)},
		{name: "one of two and text", extra: `,"n":2`, stream: text(0, `"stop"`) + text(1, "null")},
		{name: "two of two", extra: `,"n":2`, stream: text(1, `"stop"`) + text(0, `"length"`), complete: true},
		{name: "more than were asked for", stream: text(0, `"stop"`) + text(1, "null")},
		{name: "error", stream: failure, fail: true},
		{name: "error after the finish reason", stream: text(0, `"stop"`) + failure, fail: true},
		{name: "error and done", stream: failure + done, terminal: true, fail: true},
		{name: "old error", stream: "data: {\"object\":\"error\",\"message\":\"no\"}\n\n", fail: true},
		{name: "null error", stream: "data: {\"error\":null,\"choices\":[]}\n\n"},
		{name: "error as a string", stream: "data: {\"error\":\"no\"}\n\n", fail: true},
		{name: "no JSON", stream: "data: {\"choices\n\ndata: x\n\n"},
	} {
		s := stream(t, test.extra, dialect.Added{})
		whole, _ := play(s, []byte(test.stream))
		if s.Complete() != test.complete || s.Terminal() != test.terminal || (s.Result().Failure != nil) != test.fail {
			t.Errorf("%s: complete %v, terminal %v, failure %v", test.name, s.Complete(), s.Terminal(), s.Result().Failure)
		}
		if whole != test.stream {
			t.Errorf("%s: %q became %q", test.name, test.stream, whole)
		}
	}
}

// The terminal event and all behind it wait for the turn.
func TestTerminalEventAndWhatFollowsAreHeld(t *testing.T) {
	s := stream(t, "", dialect.Added{Usage: true})
	const before, after = "data: {\"choices\":[]}\n\n", "data: [DONE]\n\n: bye\n\ndata: {\"usage\":{}}\n\ndata: [DONE]\n\n"
	if whole, sent := play(s, []byte(before+after)); sent != before || whole != before+after {
		t.Errorf("sent %q of %q", sent, whole)
	}
}

// Deltas of one index are one call, in whatever order they come.
func TestToolCallDeltasAreMergedByIndex(t *testing.T) {
	delta := func(s string) string {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":[` + s + `]}}]}` + "\n\n"
	}
	chunks := delta(`{"index":1,"id":"b","function":{"name":"second","arguments":""}}`) +
		delta(`{"index":0,"id":"a","function":{"name":"first","arguments":"{\"x\""}},{"index":1,"function":{"arguments":"{}"}}`) +
		delta(`{"index":0,"function":{"arguments":":1}"}}`) +
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
	s := stream(t, "", dialect.Added{})
	play(s, []byte(chunks))
	got := s.Result().Choices
	if len(got) != 1 || !slices.Equal(got[0].ToolCalls, []string{"first", "second"}) {
		t.Fatalf("got %+v", got)
	}
	assembled, err := dialect.Chat{}.Assemble([]byte(chunks))
	if err != nil {
		t.Fatal(err)
	}
	r := parse(t, `{`+hi+`}`)
	want, err := dialect.Chat{}.Response(assembled, dialect.Chat{}.Conversation(r))
	if err != nil || !reflect.DeepEqual(comparableChoices(got), comparableChoices(want.Choices)) {
		t.Errorf("the stream is %+v, what it assembles to %+v, %v", got, want.Choices, err)
	}
}

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

// An answer that is an error, or nonsense, says so.
func TestResponseTellsAnswersFromErrors(t *testing.T) {
	for body, message := range map[string]string{
		`{"error":{"message":"no"}}`:        "no",
		`{"error":{"code":5}}`:              `{"code":5}`,
		`{"error":"no"}`:                    "no",
		`{"object":"error","message":"no"}`: "no",
		`{"detail":"no"}`:                   "the answer has no choices",
		`{}`:                                "the answer has no choices",
		`{"error":null,"choices":[{"message":{}}]}`: "",
		`{"choices":[]}`: "",
	} {
		result, err := dialect.Chat{}.Response([]byte(body), dialect.Conversation{})
		switch {
		case err != nil:
			t.Errorf("%s: %v", body, err)
		case message == "" && result.Failure != nil, message != "" && (result.Failure == nil || result.Failure.Message != message):
			t.Errorf("%s: failure is %+v, want %q", body, result.Failure, message)
		}
	}
	for _, body := range []string{``, `[]`, `"x"`, `{`, `{"a":1}x`} {
		if _, err := (dialect.Chat{}).Response([]byte(body), dialect.Conversation{}); err == nil {
			t.Errorf("%s is taken for an answer", body)
		}
	}
}
