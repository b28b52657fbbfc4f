package dialect_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
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
