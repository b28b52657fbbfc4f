package dialect_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

func parseCompletions(t *testing.T, body string) *dialect.Request {
	t.Helper()
	r, err := dialect.Completions{}.Parse([]byte(body), nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestCompletionsTakeEveryFormOfPrompt(t *testing.T) {
	for _, body := range []string{
		`{"prompt":""}`, `{"prompt":"hi"}`, `{"prompt":["a","b"]}`, `{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`,
		`{"prompt":null,"prompt_embeds":"QUJD"}`, `{"prompt_embeds":["QUJD"]}`,
	} {
		if r := parseCompletions(t, body); string(r.Body()) != body {
			t.Errorf("%s became %s", body, r.Body())
		}
	}
	for body, param := range map[string]string{
		`{}`:                               "prompt",
		`{"prompt":null}`:                  "prompt",
		`{"prompt":7}`:                     "prompt",
		`{"prompt":{"text":"a"}}`:          "prompt",
		`{"prompt":"a","prompt":"b"}`:      "prompt",
		`{"prompt":"a","stream":1}`:        "stream",
		`{"prompt":"a","echo":1,"echo":2}`: "echo",
		`{"prompt":"a"`:                    "",
	} {
		_, err := dialect.Completions{}.Parse([]byte(body), nil)
		if e, ok := errors.AsType[*dialect.RequestError](err); !ok || e.Param != param {
			t.Errorf("%s: got %v, want a RequestError about %q", body, err, param)
		}
	}
}

func TestCompletionsOverrides(t *testing.T) {
	sampling := map[string]json.RawMessage{"max_completion_tokens": json.RawMessage("5"), "top_k": json.RawMessage("20")}
	both := map[string]json.RawMessage{"max_completion_tokens": json.RawMessage("5"), "max_tokens": json.RawMessage("6")}
	for _, test := range []struct {
		name, body, want string
		overrides        dialect.Overrides
	}{
		{"nothing", `{"prompt" : "a"}`, `{"prompt" : "a"}`, dialect.Overrides{Usage: dialect.UsageRequired}},
		{"model", `{"model":"x","prompt":"a"}`, `{"model":"y","prompt":"a"}`, dialect.Overrides{Model: "y"}},
		{"sampling", `{"max_tokens":1,"prompt":"a"}`, `{"max_tokens":5,"prompt":"a","top_k":20}`, dialect.Overrides{Sampling: sampling}},
		{"sampling that yields", `{"max_tokens":1,"prompt":"a"}`, `{"max_tokens":1,"prompt":"a","top_k":20}`, dialect.Overrides{Sampling: sampling, Yield: true}},
		{"both names", `{"prompt":"a"}`, `{"prompt":"a","max_tokens":6}`, dialect.Overrides{Sampling: both}},
		{"usage", `{"prompt":"a","stream":true}`, `{"prompt":"a","stream":true,"stream_options":{"include_usage":true}}`, dialect.Overrides{Usage: dialect.UsageAsked}},
	} {
		r := parseCompletions(t, test.body)
		added, err := dialect.Completions{}.Override(r, test.overrides)
		if err != nil || string(r.Body()) != test.want || added.Usage != (test.name == "usage") {
			t.Errorf("%s: got %s, %+v, %v; want %s", test.name, r.Body(), added, err, test.want)
		}
	}
	r := parseCompletions(t, `{"prompt":"a","max_tokens":1,"max_tokens":2}`)
	if _, err := (dialect.Completions{}).Override(r, dialect.Overrides{Sampling: both}); err == nil {
		t.Error("a field that stands twice was overridden")
	}
}

// choiceOf is the only choice of the answer to a prompt.
func choiceOf(t *testing.T, request, answer string) registry.Choice {
	t.Helper()
	result, err := dialect.Completions{}.Response([]byte(answer), dialect.Completions{}.Conversation(parseCompletions(t, request)))
	if err != nil || len(result.Choices) != 1 {
		t.Fatalf("%s: %+v, %v", answer, result, err)
	}
	return result.Choices[0]
}

func TestPromptThatBeginsWithAPromptAndItsCompletionGoesOn(t *testing.T) {
	text := choiceOf(t, `{"prompt":"caf\u00e9 "}`, `{"choices":[{"text":"\u00e0 la"}]}`)
	ids := choiceOf(t, `{"prompt":[1,2]}`, `{"choices":[{"text":"x","token_ids":[3,40000]}]}`)
	echo := choiceOf(t, `{"prompt":"café ","echo":true}`, `{"choices":[{"text":"café à la"}]}`)
	if text.Continuation != echo.Continuation || text.TextLength != echo.TextLength || text.TextLength != len("café à la") {
		t.Errorf("a completion is continued as %d of %d bytes, with echo as %d of %d", text.Continuation, text.TextLength, echo.Continuation, echo.TextLength)
	}
	if got := echo.Text(); got != "à la" {
		t.Errorf("the text of an echoed answer is %q, want what was generated", got)
	}
	if got := choiceOf(t, `{"prompt":"abc","echo":true}`, `{"choices":[{"text":"xbcd"}]}`).Text(); got != "xbcd" {
		t.Errorf("the text of an answer that echoes something else is %q", got)
	}
	for prompt, want := range map[string][]uint64{
		`"café à la"`:             {text.Continuation},
		`"café à la carte"`:       {text.Continuation},
		`"caf\u00e9 \u00e0 la !"`: {text.Continuation},
		`"café à"`:                nil,
		`"CAFÉ à la carte"`:       nil,
		`[1,2,3,40000]`:           {ids.Continuation},
		`[1, 2, 3, 40000.0, 5]`:   {ids.Continuation},
		`[1,2,3]`:                 nil,
		`[1,2,4,40000,5]`:         nil,
	} {
		lengths := []int{text.TextLength, ids.TextLength}
		slices.Sort(lengths)
		c := dialect.Completions{}.Conversation(parseCompletions(t, `{"prompt":`+prompt+`}`))
		got := c.TextPrefixes()(lengths)
		got = slices.DeleteFunc(got, func(h uint64) bool { return h != text.Continuation && h != ids.Continuation })
		if !slices.Equal(got, want) {
			t.Errorf("%s goes on with %v, want %v", prompt, got, want)
		}
		c.Forget()
		if got := c.TextPrefixes()(lengths); len(got) != 0 {
			t.Errorf("%s has the prefixes %v once it is forgotten", prompt, got)
		}
	}
}

func TestWhatCannotBeContinuedHasNoContinuation(t *testing.T) {
	for request, answer := range map[string]string{
		`{"prompt":["a","b"]}`:     `{"choices":[{"text":"x"}]}`,
		`{"prompt":[[1],[2]]}`:     `{"choices":[{"text":"x"}]}`,
		`{"prompt":[1,2]}`:         `{"choices":[{"text":"x"}]}`,
		`{"prompt":[1,2.5]}`:       `{"choices":[{"text":"x","token_ids":[3]}]}`,
		`{"prompt":[1,"a"]}`:       `{"choices":[{"text":"x","token_ids":[3]}]}`,
		`{"prompt_embeds":"QUJD"}`: `{"choices":[{"text":"x"}]}`,
	} {
		if c := choiceOf(t, request, answer); c.Continuation != 0 || c.TextLength != 0 || c.Text() != "x" {
			t.Errorf("%s: the choice is %+v", request, c)
		}
	}
}

func TestCompletionsStreamAmountsToItsJSON(t *testing.T) {
	for _, test := range []struct{ request, stream, whole string }{
		{`{"prompt":"Hello,","stream":true}`, "openai/completions-usage.sse", "openai/completions.json"},
		{`{"prompt":"Hello,","stream":true}`, "vllm/completions-usage.sse", "vllm/completions.json"},
		{`{"prompt":[9707,11],"stream":true}`, "vllm/completions-ids-logprobs-usage.sse", "vllm/completions-ids-logprobs.json"},
		{`{"prompt":[9707,11],"stream":true}`, "sglang/completions-ids-logprobs-usage.sse", "sglang/completions-ids-logprobs.json"},
	} {
		r := parseCompletions(t, test.request)
		c := dialect.Completions{}.Conversation(r)
		s := dialect.Completions{}.Stream(r, dialect.Added{}, c)
		raw := scripted.Fixture(test.stream)
		for _, event := range split(raw) {
			s.Event(event)
		}
		want, err := dialect.Completions{}.Response(scripted.Fixture(test.whole), c)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Result()
		if !s.Complete() || !s.Terminal() || got.Choices[0].Text() != want.Choices[0].Text() || !reflect.DeepEqual(got.Usage, want.Usage) || got.Model != want.Model {
			t.Errorf("%s: got %+v, want %+v", test.stream, got, want)
		}
		a, b := got.Choices[0], want.Choices[0]
		if a.Text, b.Text = nil, nil; !reflect.DeepEqual(a, b) || a.Continuation == 0 {
			t.Errorf("%s: the choice is %+v, want %+v", test.stream, a, b)
		}
		assembled, err := dialect.Completions{}.Assemble(raw)
		if err != nil {
			t.Fatal(err)
		}
		fields := func(response []byte) dialect.Details { return dialect.Completions{}.Inspect(response) }
		if got, want := fields(assembled), fields(scripted.Fixture(test.whole)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s amounts to\n%s\nwith the details %+v, want %+v", test.stream, assembled, got, want)
		}
	}
}

func TestAssembledCompletionKeepsItsObjectAndUnknownFields(t *testing.T) {
	stream := `data: {"object":"text_completion","choices":[{"index":1,"text":"b","stop_reason":null},{"index":0,"text":"\ud83d","x":{"y":"1"}}]}` + "\n\n" +
		`data: {"object":"text_completion","choices":[{"index":0,"text":"\ude00","x":{"y":"2"}},{"index":1,"text":"c","stop_reason":7}],"late":1}` + "\n\ndata: [DONE]\n\n"
	want := `{"object":"text_completion","choices":[{"index":0,"text":"\ud83d\ude00","x":{"y":"12"}},{"index":1,"text":"bc","stop_reason":7}],"late":1}`
	if got, err := (dialect.Completions{}).Assemble([]byte(stream)); err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

func TestCompletionsStreamWaitsForEveryChoice(t *testing.T) {
	for request, want := range map[string]int{
		`{"prompt":"a","n":2,"stream":true}`:           2,
		`{"prompt":["a","b"],"n":2,"stream":true}`:     4,
		`{"prompt":[[1],[2],[3]],"stream":true}`:       3,
		`{"prompt":[1,2,3],"best_of":5,"stream":true}`: 1,
	} {
		r := parseCompletions(t, request)
		s := dialect.Completions{}.Stream(r, dialect.Added{}, dialect.Conversation{})
		for i := range want {
			if s.Complete() {
				t.Errorf("%s is complete after %d choices", request, i)
			}
			s.Event([]byte(`data: {"choices":[{"index":` + string(rune('0'+i)) + `,"text":"x","finish_reason":"stop"}]}` + "\n\n"))
		}
		if !s.Complete() {
			t.Errorf("%s is not complete after %d choices", request, want)
		}
	}
}
