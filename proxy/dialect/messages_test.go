package dialect_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

func parseMessages(t *testing.T, body string) *dialect.Request {
	t.Helper()
	r, err := dialect.Messages{}.Parse([]byte(body), nil)
	if err != nil {
		t.Fatalf("parse %s: %v", body, err)
	}
	return r
}

// messagesPrefixes fingerprints the messages of a request that has these.
func messagesPrefixes(t *testing.T, messages string) []uint64 {
	t.Helper()
	return dialect.Messages{}.Conversation(parseMessages(t, `{"messages":[`+messages+`]}`)).Prefixes
}

func last(links []uint64) uint64 { return links[len(links)-1] }

func TestMessagesRequestIsRead(t *testing.T) {
	r := parseMessages(t, ` {"model":"claude","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]} `)
	if r.Model != "claude" || !r.Stream {
		t.Errorf("got model %q, stream %v", r.Model, r.Stream)
	}
}

func TestMessagesRefusesWhatItCannotRead(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for body, param := range map[string]string{
		`not json`:                          "",
		`[]`:                                "",
		`{` + messages:                      "",
		`{}`:                                "messages",
		`{"messages":"hi"}`:                 "messages",
		`{"messages":[]}`:                   "messages",
		`{"model":5,` + messages + `}`:      "model",
		`{"stream":"yes",` + messages + `}`: "stream",
		`{"model":"a","model":"b",` + messages + `}`:           "model",
		`{"stream":true,"str\u0065am":false,` + messages + `}`: "stream",
		`{` + messages + `,` + messages + `}`:                  "messages",
	} {
		_, err := dialect.Messages{}.Parse([]byte(body), nil)
		if e, ok := errors.AsType[*dialect.RequestError](err); !ok || e.Param != param || e.Message == "" {
			t.Errorf("%s: got %v, want a RequestError about %q", body, err, param)
		}
	}
}

func TestMessagesOverridesAreWrittenInPlace(t *testing.T) {
	const rest = `"messages": [{"role":"user","content":"<\u003c 12345678901234567890"}]`
	sampling := func(text string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, tt := range []struct {
		name, body, want string
		overrides        dialect.Overrides
	}{
		{"nothing", `{ "model":"a",` + rest + ` }`, `{ "model":"a",` + rest + ` }`, dialect.Overrides{Usage: dialect.UsageRequired}},
		{"model", `{ "model" : "a",` + rest + `}`, `{ "model" : "b",` + rest + `}`, dialect.Overrides{Model: "b"}},
		{"no model", `{` + rest + `}`, `{` + rest + `,"model":"b"}`, dialect.Overrides{Model: "b"}},
		{
			"sampling", `{"temperature":0.2,` + rest + `}`, `{"temperature":1.0,` + rest + `,"top_k":20}`,
			dialect.Overrides{Sampling: sampling(`{"top_k":20,"temperature":1.0}`)},
		},
		{
			"sampling that yields", `{"temperature":0.2,` + rest + `}`, `{"temperature":0.2,` + rest + `,"top_k":20}`,
			dialect.Overrides{Sampling: sampling(`{"top_k":20,"temperature":1.0}`), Yield: true},
		},
		{
			"newer name of max_tokens", `{"max_tokens":9,` + rest + `}`, `{"max_tokens":5,` + rest + `}`,
			dialect.Overrides{Sampling: sampling(`{"max_completion_tokens":5}`)},
		},
		{
			"both names of max_tokens", `{"max_tokens":9,` + rest + `}`, `{"max_tokens":6,` + rest + `}`,
			dialect.Overrides{Sampling: sampling(`{"max_completion_tokens":5,"max_tokens":6}`)},
		},
		{
			"a stream is not asked for its usage", `{"stream":true,` + rest + `}`, `{"stream":true,` + rest + `}`,
			dialect.Overrides{Usage: dialect.UsageRequired},
		},
	} {
		r := parseMessages(t, tt.body)
		added, err := dialect.Messages{}.Override(r, tt.overrides)
		if err != nil || added != (dialect.Added{}) || string(r.Body()) != tt.want {
			t.Errorf("%s: got %s, %+v, %v; want %s", tt.name, r.Body(), added, err, tt.want)
		}
	}
}

func TestMessagesOverrideOfAFieldThatStandsTwiceIsRefused(t *testing.T) {
	r := parseMessages(t, `{"max_tokens":1,"max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`)
	_, err := dialect.Messages{}.Override(r, dialect.Overrides{Sampling: map[string]json.RawMessage{"max_completion_tokens": json.RawMessage("5")}})
	if e, ok := errors.AsType[*dialect.RequestError](err); !ok || e.Param != "max_tokens" {
		t.Errorf("got %v, want a RequestError about max_tokens", err)
	}
}

func TestMessagesConversationIsTheSameHoweverItIsSerialised(t *testing.T) {
	for _, tt := range []struct{ name, a, b string }{
		{"text as a string or a block", `{"role":"user","content":"hi"}`, `{"content":[{"text":"hi","type":"text"}],"role":"user"}`},
		{"text in two blocks", `{"role":"user","content":"hi there"}`, `{"role":"user","content":[{"type":"text","text":"hi "},{"type":"text","text":"there"}]}`},
		{"escapes", `{"role":"user","content":"caf\u00e9 \/"}`, `{"role":"user","content":"café /"}`},
		{
			"thinking", `{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"y"},{"type":"text","text":"a"}]}`,
			`{"role":"assistant","content":"a"}`,
		},
		{
			"tool input", `{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1,"b":[1.0,"é"]}}]}`,
			`{"role":"assistant","content":[{"input":{"b": [1, "\u00e9"], "a": 1},"name":"f","id":"t","type":"tool_use","cache_control":{"type":"ephemeral"}}]}`,
		},
		{
			"tool result", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}`,
			`{"role":"user","content":[{"tool_use_id":"t","type":"tool_result","is_error":false,"content":[{"type":"text","text":"ok"}]}]}`,
		},
		{
			"cache mark on an image", `{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"QQ=="}}]}`,
			`{"role":"user","content":[{"type":"image","cache_control":{"type":"ephemeral"},"source":{"data":"QQ==","type":"base64"}}]}`,
		},
		{
			"cache mark on an image of a result", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":"a"}]}]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":"a","cache_control":{}}]}]}`,
		},
	} {
		if a, b := messagesPrefixes(t, tt.a), messagesPrefixes(t, tt.b); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v and %v differ", tt.name, a, b)
		}
	}
}

func TestMessagesConversationDiffersWhereItsMeaningDoes(t *testing.T) {
	seen := map[uint64]string{}
	for _, message := range []string{
		`{"role":"user","content":"hi"}`,
		`{"role":"user","content":"hj"}`,
		`{"role":"assistant","content":"hi"}`,
		`{"role":"user","content":""}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"u","name":"f","input":{}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"g","input":{}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":"1"}}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"no"}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":"ok"}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"text","text":"ok"}]}`,
		`{"role":"user","content":[{"type":"image","source":"a"}]}`,
		`{"role":"user","content":[{"type":"image","source":"b"}]}`,
		`{"role":"user","content":[{"type":"document","source":"a"}]}`,
	} {
		sum := last(messagesPrefixes(t, message))
		if other, ok := seen[sum]; ok {
			t.Errorf("%s has the fingerprint of %s", message, other)
		}
		seen[sum] = message
	}
}

func TestMessagesPrefixesChain(t *testing.T) {
	const a, b = `{"role":"user","content":"a"}`, `{"role":"assistant","content":"b"}`
	short, long := messagesPrefixes(t, a), messagesPrefixes(t, a+","+b)
	if len(long) != 2 || long[0] != short[0] || long[1] == long[0] {
		t.Errorf("got %v and %v", short, long)
	}
	if swapped := messagesPrefixes(t, b+","+a); last(swapped) == last(long) {
		t.Error("the order of the messages does not count")
	}
}

func TestMessagesSystemTextIsNoPartOfTheConversation(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"a"}]`
	a := dialect.Messages{}.Conversation(parseMessages(t, `{"system":"x",`+messages+`}`))
	b := dialect.Messages{}.Conversation(parseMessages(t, `{"system":[{"type":"text","text":"y"}],`+messages+`}`))
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%v and %v differ", a, b)
	}
}

func TestMessagesAnswerIsRead(t *testing.T) {
	for name, want := range map[string]struct {
		text, finish string
		tools        []string
		usage        registry.Usage
	}{
		"message":      {"Hello! How can I help?", "end_turn", nil, registry.Usage{InputTokens: 10, OutputTokens: 12}},
		"tools":        {"I'll look both cities up.", "tool_use", []string{"get_weather", "get_weather", "now"}, registry.Usage{InputTokens: 2463, OutputTokens: 141}},
		"answer":       {"It is 18 °C in Paris and 14 °C in København.", "end_turn", nil, registry.Usage{InputTokens: 2650, OutputTokens: 22, CachedTokens: 2463}},
		"thinking":     {"27 × 453 = 12231", "end_turn", nil, registry.Usage{InputTokens: 52, OutputTokens: 61, ReasoningTokens: 44}},
		"max-tokens":   {"Once upon a time there was", "max_tokens", nil, registry.Usage{InputTokens: 1825, OutputTokens: 6, CachedTokens: 1800}},
		"server-tools": {"I'll search for it.It is 18 °C in Paris.", "end_turn", nil, registry.Usage{InputTokens: 6039, OutputTokens: 89}},
		"unknown":      {"café <b> & 😀", "stop_sequence", nil, registry.Usage{InputTokens: 9, OutputTokens: 5}},
	} {
		got := messagesResult(t, name)
		if got.Failure != nil || got.Aborted || got.Model == "" || len(got.Choices) != 1 {
			t.Errorf("%s: got %+v", name, got)
			continue
		}
		choice := got.Choices[0]
		if choice.Text() != want.text || choice.FinishReason != want.finish || !reflect.DeepEqual(choice.ToolCalls, want.tools) {
			t.Errorf("%s: got %+v, want %+v", name, choice, want)
		}
		if got.Usage == nil || *got.Usage != want.usage {
			t.Errorf("%s: got usage %+v, want %+v", name, got.Usage, want.usage)
		}
	}
}

// messagesResult reads a JSON fixture as the answer to messagesQuestion.
func messagesResult(t *testing.T, name string) dialect.Result {
	t.Helper()
	question := dialect.Messages{}.Conversation(parseMessages(t, messagesQuestion))
	result, err := dialect.Messages{}.Response(scripted.Fixture("anthropic/"+name+".json"), question)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

const messagesQuestion = `{"messages":[{"role":"user","content":"Hi"}]}`

func TestMessagesAnswerIsContinuedByARequestThatRepeatsIt(t *testing.T) {
	for _, name := range []string{"message", "tools", "answer", "thinking", "max-tokens", "server-tools", "unknown"} {
		var answer struct{ Content json.RawMessage }
		if err := json.Unmarshal(scripted.Fixture("anthropic/"+name+".json"), &answer); err != nil {
			t.Fatal(err)
		}
		next := messagesPrefixes(t, `{"role":"user","content":[{"type":"text","text":"Hi"}]},{"content":`+string(answer.Content)+`,"role":"assistant"},{"role":"user","content":"and?"}`)
		if got := messagesResult(t, name).Choices[0].Continuation; got != next[1] {
			t.Errorf("%s: the request does not continue the answer", name)
		}
	}
}

func TestMessagesErrorInA200IsAFailure(t *testing.T) {
	for body, message := range map[string]string{
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`: "Overloaded",
		`{"error":{"message":"no such model"}}`:                                       "no such model",
		`{"error":"plain"}`:                                                           `"plain"`,
		`{"id":"msg_1"}`:                                                              "the answer has no content",
	} {
		got, err := dialect.Messages{}.Response([]byte(body), dialect.Conversation{})
		if err != nil || got.Failure == nil || got.Failure.Message != message {
			t.Errorf("%s: got %+v, %v; want failure %q", body, got.Failure, err, message)
		}
	}
}

func TestMessagesAnswerThatIsNoJSONIsAnError(t *testing.T) {
	for _, body := range []string{"", "null", "[]", `{"content":[`, "<html>"} {
		if got, err := (dialect.Messages{}).Response([]byte(body), dialect.Conversation{}); err == nil {
			t.Errorf("%q: got %+v, want an error", body, got)
		}
	}
}

func TestMessagesUsageThatIsNotToldIsUnknown(t *testing.T) {
	for _, body := range []string{`{"content":[]}`, `{"content":[],"usage":null}`} {
		got, err := dialect.Messages{}.Response([]byte(body), dialect.Conversation{})
		if err != nil || got.Usage != nil {
			t.Errorf("%s: got %+v, %v", body, got.Usage, err)
		}
	}
}

func TestMessagesErrorsHaveTheShapeOfTheAPI(t *testing.T) {
	types := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		405: "invalid_request_error", 410: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error",
		500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error",
	}
	for status, kind := range types {
		body := dialect.Messages{}.ErrorBody(dialect.Error{Status: status, Code: "a_code", Message: "a \"message\"\n"})
		want := `{"type":"error","error":{"type":"` + kind + `","message":"a \"message\"\n","code":"a_code"}}`
		if string(body) != want {
			t.Errorf("%d: got %s, want %s", status, body, want)
		}
	}
	e := dialect.Error{Status: 400, Code: "session_stopped", Message: "m", StopCondition: "max_turns"}
	const body = `{"type":"error","error":{"type":"invalid_request_error","message":"m","code":"session_stopped","stop_condition":"max_turns"},"stop_condition":"max_turns"}`
	if got := string(dialect.Messages{}.ErrorBody(e)); got != body {
		t.Errorf("got %s, want %s", got, body)
	}
	if got := string(dialect.Messages{}.ErrorEvent(e)); got != "event: error\ndata: "+body+"\n\n" {
		t.Errorf("got %q", got)
	}
}

func TestMessagesTooLongPromptIsAnOverflow(t *testing.T) {
	if !dialect.ContextOverflow(400, scripted.Fixture("anthropic/context.json")) {
		t.Error("a prompt that is too long is not seen as such")
	}
	if dialect.ContextOverflow(400, []byte(strings.ReplaceAll(string(scripted.Fixture("anthropic/context.json")), "too long", "empty"))) {
		t.Error("another refusal is seen as an overflow")
	}
}

func TestMessagesInspectShowsTheOneChoice(t *testing.T) {
	for name, want := range map[string]string{"message": "end_turn", "tools": "tool_use", "max-tokens": "max_tokens"} {
		got := dialect.Messages{}.Inspect(scripted.Fixture("anthropic/" + name + ".json"))
		if len(got.Choices) != 1 || got.Choices[0].FinishReason != want {
			t.Errorf("%s: got %+v, want %s", name, got, want)
		}
	}
	if got := (dialect.Messages{}).Inspect(scripted.Fixture("anthropic/529.json")); got.Choices != nil {
		t.Errorf("an error has the choices %+v", got.Choices)
	}
}
