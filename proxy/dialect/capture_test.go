package dialect_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
)

var (
	askedVLLM   = dialect.Added{TokenIDs: true, PromptTokenIDs: true, Nulls: true}
	askedSGLang = dialect.Added{TokenIDs: true, PromptTokenIDs: true, MetaInfo: true}
)

func TestTokensAreAskedForAsTheEngineGivesThem(t *testing.T) {
	both := func(e dialect.Engine) dialect.Capture { return dialect.Capture{TokenIDs: e, Logprobs: true} }
	chat, completions := dialect.Dialect(dialect.Chat{}), dialect.Dialect(dialect.Completions{})
	for _, test := range []struct {
		name    string
		dialect dialect.Dialect
		capture dialect.Capture
		body    string
		adds    string
		added   dialect.Added
	}{
		{"nothing", chat, dialect.Capture{}, `{` + hi, ``, dialect.Added{}},
		{"vLLM", chat, dialect.Capture{TokenIDs: dialect.VLLM}, `{` + hi, `,"return_token_ids":true`, askedVLLM},
		{"vLLM, stream", chat, both(dialect.VLLM), `{"stream":true,` + hi, `,"logprobs":true,"return_token_ids":true`, askedVLLM.With(dialect.Added{Logprobs: true})},
		{"logprobs", chat, dialect.Capture{Logprobs: true}, `{` + hi, `,"logprobs":true`, dialect.Added{Logprobs: true}},
		{"asked by the harness", chat, both(dialect.VLLM), `{"logprobs":true,"top_logprobs":5,"return_token_ids":true,` + hi, ``, dialect.Added{}},
		{"half asked", chat, both(dialect.VLLM), `{"return_token_ids":true,` + hi, `,"logprobs":true`, dialect.Added{Logprobs: true}},
		{"SGLang", chat, dialect.Capture{TokenIDs: dialect.SGLang}, `{` + hi, `,"return_token_ids":true,"return_prompt_token_ids":true,"return_meta_info":true`, askedSGLang},
		{"SGLang, half asked", chat, dialect.Capture{TokenIDs: dialect.SGLang}, `{"return_prompt_token_ids":true,` + hi, `,"return_token_ids":true,"return_meta_info":true`, dialect.Added{TokenIDs: true, MetaInfo: true}},
		{"SGLang, stream", chat, both(dialect.SGLang), `{"stream":true,` + hi, `,"logprobs":true`, dialect.Added{Logprobs: true}},
		{"vLLM", completions, both(dialect.VLLM), `{"prompt":"a"`, `,"logprobs":1,"return_token_ids":true`, askedVLLM.With(dialect.Added{Logprobs: true})},
		{"SGLang, stream", completions, both(dialect.SGLang), `{"stream":true,"prompt":"a"`, `,"logprobs":1,"return_token_ids":true`, dialect.Added{TokenIDs: true, PromptTokenIDs: true, Logprobs: true}},
		{"asked by the harness", completions, both(dialect.VLLM), `{"prompt":"a","logprobs":0,"return_token_ids":true`, ``, dialect.Added{}},
		{"echo", completions, both(dialect.VLLM), `{"prompt":"a","echo":true`, ``, dialect.Added{}},
	} {
		r, err := test.dialect.Parse([]byte(test.body+`}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		added, err := test.dialect.Override(r, dialect.Overrides{Capture: test.capture})
		if want := test.body + test.adds + `}`; err != nil || added != test.added || string(r.Body()) != want {
			t.Errorf("%s, %s: got %s, %+v, %v; want %s, %+v", test.dialect.Name(), test.name, r.Body(), added, err, want, test.added)
		}
	}
	r := parse(t, `{"logprobs":false,"logprobs":null,`+hi+`}`)
	_, err := dialect.Chat{}.Override(r, dialect.Overrides{Capture: dialect.Capture{Logprobs: true}})
	if e, ok := errors.AsType[*dialect.RequestError](err); !ok || e.Param != "logprobs" {
		t.Errorf("got %v, want a RequestError about logprobs", err)
	}
	r = parse(t, `{"logprobs":false,"return_token_ids":null,`+hi+`}`)
	if _, err := (dialect.Chat{}).Override(r, dialect.Overrides{Capture: both(dialect.VLLM)}); err != nil || string(r.Body()) != `{"logprobs":true,"return_token_ids":true,`+hi+`}` {
		t.Errorf("got %s, %v", r.Body(), err)
	}
}

// What the harness sees of an answer with tokens is what the engine would have
// sent without.
func TestCapturedTokensAreTakenOutByteForByte(t *testing.T) {
	logprobs := dialect.Added{Logprobs: true}
	for _, test := range []struct {
		dialect       dialect.Dialect
		asked, unseen string
		added         dialect.Added
	}{
		{dialect.Chat{}, "vllm/chat-ids-logprobs", "vllm/chat", askedVLLM.With(logprobs)},
		{dialect.Chat{}, "vllm/chat-ids-logprobs", "vllm/chat-logprobs", askedVLLM},
		{dialect.Chat{}, "vllm/chat-ids-logprobs", "vllm/chat-ids", logprobs},
		{dialect.Chat{}, "vllm/chat-ids", "vllm/chat", askedVLLM},
		{dialect.Chat{}, "sglang/chat-logprobs", "sglang/chat", logprobs},
		{dialect.Chat{}, "openai/logprobs", "openai/logprobs", askedVLLM},
		{dialect.Completions{}, "vllm/completions-ids-logprobs", "vllm/completions", askedVLLM.With(logprobs)},
		{dialect.Completions{}, "vllm/completions-ids-logprobs", "vllm/completions-ids", logprobs},
		{dialect.Completions{}, "sglang/completions-ids-logprobs", "sglang/completions", dialect.Added{TokenIDs: true, PromptTokenIDs: true, Logprobs: true}},
		{dialect.Completions{}, "sglang/completions-ids-logprobs", "sglang/completions-logprobs", dialect.Added{TokenIDs: true, PromptTokenIDs: true}},
	} {
		whole := scripted.Fixture(test.asked + ".json")
		if got, want := test.dialect.Visible(whole, test.added), scripted.Fixture(test.unseen+".json"); !bytes.Equal(got, want) {
			t.Errorf("%s.json without %v is\n%s\nwant\n%s", test.asked, test.added.Fields(), got, want)
		}
		for _, suffix := range []string{"-usage.sse", ".sse"} {
			added := test.added
			if suffix == ".sse" && test.dialect.Name() == "chat" && test.asked[0] == 'v' {
				added.Usage = true // which SGLang and OpenAI show in other chunks too
			} else if suffix == ".sse" {
				continue
			}
			got := visibleStream(t, test.dialect, scripted.Fixture(test.asked+"-usage.sse"), added)
			if want := scripted.Fixture(test.unseen + suffix); !bytes.Equal(got, want) {
				t.Errorf("%s without %v is\n%s\nwant\n%s", test.asked+suffix, added.Fields(), got, want)
			}
		}
	}
	for asked, unseen := range map[string]string{"sglang/chat-ids-logprobs.json": "sglang/chat-logprobs.json", "sglang/chat-ids.json": "sglang/chat.json"} {
		if got := (dialect.Chat{}).Visible(scripted.Fixture(asked), askedSGLang); !bytes.Equal(got, scripted.Fixture(unseen)) {
			t.Errorf("%s without its ids is\n%s", asked, got)
		}
	}
}

// visibleStream is what a harness sees of a stream.
func visibleStream(t *testing.T, d dialect.Dialect, raw []byte, added dialect.Added) []byte {
	t.Helper()
	s := d.Stream(&dialect.Request{}, added, dialect.Conversation{})
	var seen []byte
	for _, event := range split(raw) {
		switch action, replacement := s.Event(event); action {
		case dialect.Forward, dialect.Hold:
			seen = append(seen, event...)
		case dialect.Replace:
			seen = append(seen, replacement...)
		case dialect.Drop:
		default:
			t.Fatalf("%q: action %d", event, action)
		}
	}
	return seen
}

// vLLM sends a chunk that says nothing where a parser holds the text back, only
// for those who ask for token ids.
func TestChunkThatOnlyHasTokenIDsIsDropped(t *testing.T) {
	idle := "data: {\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":[1]}]}\n\n"
	last := "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	if got := visibleStream(t, dialect.Chat{}, []byte(idle+last), askedVLLM); string(got) != last {
		t.Errorf("the harness sees %q", got)
	}
	if got := visibleStream(t, dialect.Chat{}, []byte(idle+last), dialect.Added{}); string(got) != idle+last {
		t.Errorf("the harness that asked sees %q", got)
	}
}

func TestRefusalNamesWhatWasAdded(t *testing.T) {
	all := askedSGLang.With(dialect.Added{Usage: true, Logprobs: true})
	for text, want := range map[string]dialect.Added{
		`unknown field return_meta_info`:           askedSGLang,
		`stream_options: extra inputs`:             {Usage: true},
		`"logprobs" and "include_usage" are not`:   {Usage: true, Logprobs: true},
		`this model's maximum context length is`:   {},
		`return_prompt_token_ids is not supported`: askedSGLang,
	} {
		if got := all.NamedIn([]byte(text)); got != want {
			t.Errorf("%q names %+v, want %+v", text, got, want)
		}
	}
	if got := (dialect.Added{}).NamedIn([]byte(`logprobs`)); got != (dialect.Added{}) {
		t.Errorf("a refusal names %+v where nothing was added", got)
	}
}

func TestTokenIDsAreReadWhereEnginesPutThem(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"prompt_token_ids":[1,2],"choices":[{"index":0,"token_ids":[3]}]}`:                                                  {`[1,2]`, `[3]`},
		`{"choices":[{"index":0,"prompt_token_ids":[1],"token_ids":[3, 4]}]}`:                                                 {`[1]`, `[3, 4]`},
		`{"choices":[{"index":0,"meta_info":{"output_token_logprobs":[[-0.1,7,null],[-0.2,8,"x"]]},"prompt_token_ids":[1]}]}`: {`[1]`, `[7,8]`},
		`{"prompt_token_ids":null,"choices":[{"index":0,"token_ids":null,"meta_info":{"id":"x"}}]}`:                           {``, ``},
	} {
		d := dialect.Chat{}.Inspect([]byte(body))
		if got := [2]string{string(d.PromptTokenIDs), string(d.Choices[0].CompletionTokenIDs)}; got != want {
			t.Errorf("%s has the ids %q, want %q", body, got, want)
		}
	}
}
