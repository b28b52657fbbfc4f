package dialect_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

func parseResponses(t *testing.T, body string) *dialect.Request {
	t.Helper()
	r, err := dialect.Responses{}.Parse([]byte(body), nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestResponsesRefusesWhatIsNotBoundToTheSession(t *testing.T) {
	for _, test := range []struct{ body, param string }{
		{`{"input":"hi"`, ""},
		{`{"input":7}`, "input"},
		{`{"input":{"text":"a"}}`, "input"},
		{`{"input":"a","input":"b"}`, "input"},
		{`{"input":"a","background":true}`, "background"},
		{`{"input":"a","background":1}`, "background"},
		{`{"input":"a","conversation":"conv_1"}`, "conversation"},
		{`{"input":"a","conversation":{"id":"conv_1"}}`, "conversation"},
		{`{"input":"a","conversation":null,"conversation":"conv_1"}`, "conversation"},
		{`{"input":"a","previous_response_id":7}`, "previous_response_id"},
		{`{"input":"a","previous_response_id":"a","previous_response_\u0069d":"b"}`, "previous_response_id"},
		{`{"input":"a","stream":"yes"}`, "stream"},
	} {
		_, err := dialect.Responses{}.Parse([]byte(test.body), nil)
		if e, ok := errors.AsType[*dialect.RequestError](err); !ok || e.Param != test.param || e.Message == "" {
			t.Errorf("%s: got %v, want a RequestError about %q", test.body, err, test.param)
		}
	}
	for _, body := range []string{
		`{"input":"hi","background":false,"conversation":null,"previous_response_id":null}`, `{"prompt":{"id":"pmpt_1"}}`, `{"input":[]}`,
	} {
		if r := parseResponses(t, body); len(r.References) != 0 || string(r.Body()) != body {
			t.Errorf("%s has the references %+v", body, r.References)
		}
	}
}

func TestResponsesNamesWhatARequestRestsOn(t *testing.T) {
	ref := func(param, id string, continues bool) dialect.Reference {
		return dialect.Reference{Param: param, ID: id, Continues: continues}
	}
	for body, want := range map[string][]dialect.Reference{
		`{"input":"a","previous_response_id":"resp_1"}`:                                                           {ref("previous_response_id", "resp_1", true)},
		`{"input":[{"role":"user","content":"a","id":"x"},{"type":"item_reference","id":"msg_1"},{"id":"rs_2"}]}`: {ref("input[1].id", "msg_1", true), ref("input[2].id", "rs_2", true)},
		`{"previous_response_id":"resp_1","input":[{"id":"msg_1"}]}`:                                              {ref("previous_response_id", "resp_1", true), ref("input[0].id", "msg_1", false)},
		`{"input":[{"type":"reasoning","id":"rs_1","summary":[]}]}`:                                               {ref("input[0].id", "rs_1", false)},
		`{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null,"content":[]}]}`:         {ref("input[0].id", "rs_1", false)},
		`{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}]}`:                    nil,
		`{"input":[{"type":"reasoning","id":"rs_1","content":[{"type":"reasoning_text","text":"hm"}]}]}`:          nil,
		`{"input":[{"type":"reasoning","summary":[]}]}`:                                                           nil,
		`{"input":[{"type":"image_generation_call","id":"ig_1"}]}`:                                                {ref("input[0].id", "ig_1", false)},
		`{"input":[{"type":"mcp_approval_response","id":"x","approval_request_id":"mcpr_1","approve":true}]}`:     {ref("input[0].approval_request_id", "mcpr_1", false)},
		`{"input":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a"}]},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","id":"fco_1","call_id":"c","output":"x"},{"type":"custom_tool_call","id":"ctc_1","call_id":"c","name":"f","input":"x"}]}`: nil,
	} {
		if got := parseResponses(t, body).References; !slices.Equal(got, want) {
			t.Errorf("%s rests on %+v, want %+v", body, got, want)
		}
	}
}

func TestResponsesOverridesUseItsOwnNames(t *testing.T) {
	sampling := func(text string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, test := range []struct {
		name, body, want string
		overrides        dialect.Overrides
	}{
		{"nothing", `{"input" : "a","stream":true}`, `{"input" : "a","stream":true}`, dialect.Overrides{Usage: dialect.UsageRequired}},
		{"model", `{"model":"x","input":"a"}`, `{"model":"y","input":"a"}`, dialect.Overrides{Model: "y"}},
		{"max_tokens", `{"max_output_tokens":1,"input":"a"}`, `{"max_output_tokens":5,"input":"a"}`, dialect.Overrides{Sampling: sampling(`{"max_tokens":5}`)}},
		{"max_completion_tokens", `{"input":"a"}`, `{"input":"a","max_output_tokens":5}`, dialect.Overrides{Sampling: sampling(`{"max_completion_tokens":5}`)}},
		{"its own name wins", `{"input":"a"}`, `{"input":"a","max_output_tokens":7}`, dialect.Overrides{Sampling: sampling(`{"max_tokens":5,"max_output_tokens":7}`)}},
		{"yields", `{"input":"a","max_output_tokens":1}`, `{"input":"a","max_output_tokens":1,"top_p":0.5}`, dialect.Overrides{Sampling: sampling(`{"max_tokens":5,"top_p":0.5}`), Yield: true}},
	} {
		r := parseResponses(t, test.body)
		added, err := dialect.Responses{}.Override(r, test.overrides)
		if err != nil || added != (dialect.Added{}) || string(r.Body()) != test.want {
			t.Errorf("%s: got %s, %+v, %v; want %s", test.name, r.Body(), added, err, test.want)
		}
	}
}

// responsesOf follows a fixture's stream to its end.
func responsesOf(t *testing.T, request, fixture string) (dialect.Stream, []dialect.Action) {
	t.Helper()
	r := parseResponses(t, request)
	s := dialect.Responses{}.Stream(r, dialect.Added{}, dialect.Responses{}.Conversation(r))
	var actions []dialect.Action
	for _, event := range split(scripted.Fixture(fixture)) {
		action, replacement := s.Event(event)
		if replacement != nil {
			t.Errorf("%s: %q is replaced", fixture, event)
		}
		actions = append(actions, action)
	}
	return s, actions
}

func TestResponsesStreamAmountsToItsJSON(t *testing.T) {
	const request = `{"input":"hi","stream":true}`
	for _, name := range []string{"responses", "responses-tools", "responses-answer", "responses-incomplete"} {
		s, actions := responsesOf(t, request, "openai/"+name+".sse")
		whole := scripted.Fixture("openai/" + name + ".json")
		c := dialect.Responses{}.Conversation(parseResponses(t, request))
		want, err := dialect.Responses{}.Response(whole, c)
		if err != nil || want.Failure != nil {
			t.Fatalf("%s: %+v, %v", name, want, err)
		}
		got := s.Result()
		last := len(actions) - 1
		if !s.Terminal() || !s.Complete() || slices.Index(actions, dialect.Hold) != last {
			t.Errorf("%s: terminal %v, complete %v, actions %v", name, s.Terminal(), s.Complete(), actions)
		}
		if a, b := got.Choices[0].Text(), want.Choices[0].Text(); a != b {
			t.Errorf("%s: the text is %q, want %q", name, a, b)
		}
		got.Choices[0].Text, want.Choices[0].Text = nil, nil
		if !reflect.DeepEqual(got, want) || got.Choices[0].Continuation == 0 || got.Usage == nil || got.Model == "" {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		assembled, err := dialect.Responses{}.Assemble(scripted.Fixture("openai/" + name + ".sse"))
		if err != nil || !jsonEqual(t, assembled, whole) {
			t.Errorf("%s amounts to %v\n%s\nwant\n%s", name, err, assembled, whole)
		}
		if got, want := (dialect.Responses{}).Inspect(assembled), (dialect.Responses{}).Inspect(whole); !reflect.DeepEqual(got, want) || len(got.Choices) != 1 {
			t.Errorf("%s has the details %+v, want %+v", name, got, want)
		}
	}
}

func jsonEqual(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v: %s", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestResponsesTurnIsReadFromItsOutput(t *testing.T) {
	s, _ := responsesOf(t, `{"input":"hi","stream":true}`, "openai/responses-tools.sse")
	got := s.Result()
	if calls := got.Choices[0].ToolCalls; !slices.Equal(calls, []string{"get_weather", "get_weather"}) {
		t.Errorf("the tool calls are %q", calls)
	}
	if want := (registry.Usage{InputTokens: 71, OutputTokens: 98, CachedTokens: 64, ReasoningTokens: 57}); *got.Usage != want {
		t.Errorf("the usage is %+v, want %+v", *got.Usage, want)
	}
	if len(got.IDs) != 4 || !strings.HasPrefix(got.IDs[0], "resp_") || !strings.HasPrefix(got.IDs[1], "rs_") {
		t.Errorf("the ids are %q", got.IDs)
	}
	if got.Choices[0].FinishReason != "completed" {
		t.Errorf("the finish reason is %q", got.Choices[0].FinishReason)
	}
	s, _ = responsesOf(t, `{"input":"hi","stream":true}`, "openai/responses-incomplete.sse")
	if got := s.Result().Choices[0].FinishReason; got != "max_output_tokens" {
		t.Errorf("the finish reason is %q", got)
	}
}

// R25: what nobody knows passes and is kept; what follows the end is held too.
func TestResponsesKeepsUnknownEventsAndFields(t *testing.T) {
	s, actions := responsesOf(t, `{"input":"hi"}`, "openai/responses-unknown.sse")
	n := len(actions)
	if !s.Complete() || actions[n-1] != dialect.Hold || actions[n-2] != dialect.Hold || slices.Index(actions, dialect.Hold) != n-2 {
		t.Errorf("complete %v, actions %v", s.Complete(), actions)
	}
	assembled, err := dialect.Responses{}.Assemble(scripted.Fixture("openai/responses-unknown.sse"))
	if err != nil || !strings.Contains(string(assembled), `"shiny":{"keep":[1,2]}`) {
		t.Errorf("it amounts to %v\n%s", err, assembled)
	}
}

func TestResponsesOutputThatIsMissingAtTheEndIsThatOfTheItems(t *testing.T) {
	s, _ := responsesOf(t, `{"input":"hi"}`, "openai/responses-empty-output.sse")
	got := s.Result()
	if text := got.Choices[0].Text(); text != "Hello! How can I help?" || len(got.IDs) != 2 {
		t.Errorf("the text is %q, the ids are %q", text, got.IDs)
	}
	assembled, err := dialect.Responses{}.Assemble(scripted.Fixture("openai/responses-empty-output.sse"))
	if err != nil || !jsonEqual(t, assembled, scripted.Fixture("openai/responses.json")) {
		t.Errorf("it amounts to %v\n%s", err, assembled)
	}
}

func TestResponsesStreamThatIsNotWholeIsNotComplete(t *testing.T) {
	for fixture, failure := range map[string]string{
		"openai/responses-failed.sse":      "The model failed to generate a response.",
		"openai/responses-error.sse":       "Your input exceeds the context window of this model. Please adjust your input and try again.",
		"openai/responses-no-terminal.sse": "",
	} {
		s, actions := responsesOf(t, `{"input":"hi"}`, fixture)
		if s.Complete() || slices.Contains(actions, dialect.Hold) {
			t.Errorf("%s: complete %v, actions %v", fixture, s.Complete(), actions)
		}
		got := s.Failure()
		if got == nil && failure != "" || got != nil && got.Message != failure || s.Result().Failure != got {
			t.Errorf("%s: the failure is %+v, want %q", fixture, got, failure)
		}
	}
	for event, want := range map[string]dialect.Action{
		`{"type":"response.completed","response":{"status":"cancelled","output":[]}}`: dialect.Abort,
		`{"type":"response.cancelled","response":{"status":"cancelled"}}`:             dialect.Abort,
		`{"type":"response.completed","response":{"status":"completed"`:               dialect.Forward,
		`{"error":{"message":"boom"}}`:                                                dialect.Forward,
		`[DONE]`:                                                                      dialect.Hold,
	} {
		s := dialect.Responses{}.Stream(&dialect.Request{}, dialect.Added{}, dialect.Conversation{})
		action, _ := s.Event([]byte("data: " + event + "\n\n"))
		if action != want || s.Complete() || s.Result().Aborted != (want == dialect.Abort) || (s.Failure() != nil) != strings.Contains(event, "boom") {
			t.Errorf("%s: action %d, complete %v, result %+v", event, action, s.Complete(), s.Result())
		}
	}
}

func TestResponsesAnswerThatIsNoneIsAFailure(t *testing.T) {
	for body, message := range map[string]string{
		`{"error":{"message":"no"}}`: "no",
		`{"status":"failed","error":{"code":"x","message":"gone"},"output":[]}`: "gone",
		`{"status":"failed","error":null,"output":[]}`:                          "the response is failed",
		`{"status":"in_progress","output":[]}`:                                  "the response is in_progress",
		`{"id":"resp_1"}`:                                                       "the answer has no output",
	} {
		result, err := dialect.Responses{}.Response([]byte(body), dialect.Conversation{})
		if err != nil || result.Failure == nil || result.Failure.Message != message {
			t.Errorf("%s: got %+v, %v; want the failure %q", body, result.Failure, err, message)
		}
	}
	result, err := dialect.Responses{}.Response([]byte(`{"status":"cancelled","output":[]}`), dialect.Conversation{})
	if err != nil || !result.Aborted {
		t.Errorf("a cancelled response is %+v, %v", result, err)
	}
	if _, err := (dialect.Responses{}).Response([]byte(`{"output":[`), dialect.Conversation{}); err == nil {
		t.Error("half a response is one")
	}
}
