package dialect_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// parse reads a request that must be good.
func parse(t *testing.T, body string) *dialect.Request {
	t.Helper()
	r, err := dialect.Chat{}.Parse([]byte(body), nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

const hi = `"messages":[{"role":"user","content":"hi"}]`

func TestParseReadsModelAndStream(t *testing.T) {
	for body, want := range map[string]struct {
		model  string
		stream bool
	}{
		`{` + hi + `}`:                                            {"", false},
		`{"model":"m",` + hi + `,"stream":true}`:                  {"m", true},
		` {"model" : "a\/b" , ` + hi + `,"stream":false }` + "\n": {"a/b", false},
		`{"model":null,` + hi + `,"stream":null,"n":null}`:        {"", false},
		`{"m\u006fdel":"m",` + hi + `,"str\u0065am":true}`:        {"m", true},
		`{"x":{"model":1,"stream":7},` + hi + `}`:                 {"", false},
		`{"top_p":1,"top_p":2,` + hi + `}`:                        {"", false}, // muxproxy does not read it
	} {
		r := parse(t, body)
		if r.Model != want.model || r.Stream != want.stream || string(r.Body()) != body {
			t.Errorf("%s: model %q, stream %v, body %s", body, r.Model, r.Stream, r.Body())
		}
	}
}

func TestParseNamesTheFieldAtFault(t *testing.T) {
	for body, param := range map[string]string{
		``:                 "",
		`[]`:               "",
		`"x"`:              "",
		`null`:             "",
		`{` + hi:           "",
		`{` + hi + `}x`:    "",
		`{` + hi + `,}`:    "",
		"{\"a\":\"\x00\"}": "",
		strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000): "",
		`{}`:                                                  "messages",
		`{"messages":[]}`:                                     "messages",
		`{"messages":[ ]}`:                                    "messages",
		`{"messages":null}`:                                   "messages",
		`{"messages":{}}`:                                     "messages",
		`{"messages":"hi"}`:                                   "messages",
		`{` + hi + `,` + hi + `}`:                             "messages",
		`{` + hi + `,"mess\u0061ges":[]}`:                     "messages",
		`{` + hi + `,"model":1}`:                              "model",
		`{` + hi + `,"model":["m"]}`:                          "model",
		`{"model":"a",` + hi + `,"model":"b"}`:                "model",
		`{"model":"a",` + hi + `,"m\u006fdel":1}`:             "model",
		`{` + hi + `,"stream":1}`:                             "stream",
		`{` + hi + `,"stream":"true"}`:                        "stream",
		`{` + hi + `,"stream":true,"stream":false}`:           "stream",
		`{` + hi + `,"stream_options":{},"stream_options":1}`: "stream_options",
		`{` + hi + `,"n":1,"n":2}`:                            "n",
	} {
		_, err := dialect.Chat{}.Parse([]byte(body), nil)
		invalid, ok := errors.AsType[*dialect.RequestError](err)
		if !ok || invalid.Param != param || invalid.Message == "" {
			t.Errorf("%.60s: got %#v, want the field %q", body, err, param)
		}
	}
}

// sampling makes a session's sampling fields of JSON.
func sampling(t *testing.T, fields string) map[string]json.RawMessage {
	t.Helper()
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(fields), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOverrideEditsOnlyWhatTheSessionSays(t *testing.T) {
	for _, test := range []struct {
		name, body, model, sampling, want string
		yield                             bool
	}{
		{name: "nothing", body: `{ "b":1.0 , ` + hi + `, "a":12345678901234567890 }`, want: `{ "b":1.0 , ` + hi + `, "a":12345678901234567890 }`},
		{name: "model in its place", body: `{"model" : "x",` + hi + `}`, model: "a\"b<", want: `{"model" : "a\"b<",` + hi + `}`},
		{name: "model that was absent", body: `{` + hi + `}`, model: "m", want: `{` + hi + `,"model":"m"}`},
		{name: "model that was null", body: `{"model":null,` + hi + `}`, model: "m", want: `{"model":"m",` + hi + `}`},
		{name: "sampling wins", body: `{"temperature":0,` + hi + `}`, sampling: `{"temperature":1.0,"top_k":20}`, want: `{"temperature":1.0,` + hi + `,"top_k":20}`},
		{name: "sampling yields", body: `{"temperature":0,` + hi + `}`, sampling: `{"temperature":1.0,"top_k":20}`, yield: true, want: `{"temperature":0,` + hi + `,"top_k":20}`},
		{name: "null leaves a field open", body: `{"temperature":null,` + hi + `}`, sampling: `{"temperature":1}`, yield: true, want: `{"temperature":1,` + hi + `}`},
		{name: "values keep their spelling", body: `{` + hi + `}`, sampling: `{"a":{"x": [1.0, 2]},"b":1e2}`, want: `{` + hi + `,"a":{"x": [1.0, 2]},"b":1e2}`},
	} {
		r := parse(t, test.body)
		o := dialect.Overrides{Model: test.model, Yield: test.yield}
		if test.sampling != "" {
			o.Sampling = sampling(t, test.sampling)
		}
		added, err := dialect.Chat{}.Override(r, o)
		if err != nil || added != (dialect.Added{}) || string(r.Body()) != test.want {
			t.Errorf("%s: got %v, %v\n%s\nwant\n%s", test.name, added, err, r.Body(), test.want)
		}
	}
}

func TestOverriddenFieldMayNotStandTwice(t *testing.T) {
	r := parse(t, `{"top_p":1,`+hi+`,"top\u005fp":0.5}`)
	_, err := dialect.Chat{}.Override(r, dialect.Overrides{Sampling: sampling(t, `{"top_p":0.9}`)})
	if invalid, ok := errors.AsType[*dialect.RequestError](err); !ok || invalid.Param != "top_p" {
		t.Errorf("got %v, want an error about top_p", err)
	}
}

func TestNeverTwoLimitsOnGeneratedTokens(t *testing.T) {
	const older, newer = "max_tokens", "max_completion_tokens"
	for _, session := range []string{`{"max_tokens":7}`, `{"max_completion_tokens":7}`, `{"max_tokens":8,"max_completion_tokens":7}`} {
		for sent, name := range map[string]string{
			``: "", `"max_tokens":1,`: older, `"max_completion_tokens":1,`: newer,
			`"max_tokens":1,"max_completion_tokens":2,`: newer, `"max_completion_tokens":2,"max_tokens":1,`: newer,
			`"max_tokens":null,`: older,
		} {
			for _, yield := range []bool{false, true} {
				r := parse(t, `{`+sent+hi+`}`)
				if _, err := (dialect.Chat{}).Override(r, dialect.Overrides{Sampling: sampling(t, session), Yield: yield}); err != nil {
					t.Fatal(err)
				}
				if yield && sent != "" && !strings.Contains(sent, "null") {
					if want := `{` + sent + hi + `}`; string(r.Body()) != want {
						t.Errorf("session %s yields to %s: got %s", session, sent, r.Body())
					}
					continue
				}
				var got map[string]any
				if err := json.Unmarshal(r.Body(), &got); err != nil {
					t.Fatalf("%s: %v", r.Body(), err)
				}
				if name == "" {
					name = older
					if strings.Contains(session, newer) {
						name = newer
					}
				}
				other := older + newer
				other = strings.Replace(other, name, "", 1)
				if _, both := got[other]; both || got[name] != 7.0 {
					t.Errorf("session %s, harness %s: got %s, want %s of 7 alone", session, sent, r.Body(), name)
				}
			}
		}
	}
}

func TestUsageIsAskedForAsFarAsItMayBe(t *testing.T) {
	const with = `"stream":true,"stream_options":`
	for _, test := range []struct {
		body, want string
		wish       dialect.UsageWish
		added      bool
	}{
		{`"stream":true`, `"stream":true`, dialect.UsageAsIs, false},
		{`"stream":true`, with + `{"include_usage":true}`, dialect.UsageAsked, true},
		{`"stream":false`, `"stream":false`, dialect.UsageRequired, false},
		{`"stream":false,"stream_options":{}`, `"stream":false,"stream_options":{}`, dialect.UsageRequired, false},
		{with + `null`, with + `{"include_usage":true}`, dialect.UsageAsked, true},
		{with + `{}`, with + `{"include_usage":true}`, dialect.UsageAsked, true},
		{with + `{"include_usage":true}`, with + `{"include_usage":true}`, dialect.UsageRequired, false},
		{with + `{"include_usage":false}`, with + `{"include_usage":false}`, dialect.UsageAsked, false},
		{with + `{"include_usage":false}`, with + `{"include_usage":true}`, dialect.UsageRequired, true},
		{with + `{"include_usage":null}`, with + `{"include_usage":true}`, dialect.UsageAsked, true},
		{with + `{ "x" : 1 }`, with + `{ "x" : 1,"include_usage":true }`, dialect.UsageAsked, true},
		{with + `[1]`, with + `[1]`, dialect.UsageRequired, false},
		{with + `"yes"`, with + `"yes"`, dialect.UsageRequired, false},
		{with + `{"include_usage":false,"include_usage":true}`, with + `{"include_usage":false,"include_usage":true}`, dialect.UsageRequired, false},
	} {
		r := parse(t, `{`+hi+`,`+test.body+`}`)
		added, err := dialect.Chat{}.Override(r, dialect.Overrides{Usage: test.wish})
		if want := `{` + hi + `,` + test.want + `}`; err != nil || added.Usage != test.added || string(r.Body()) != want {
			t.Errorf("wish %d: got %v, %v, %s\nwant %v, %s", test.wish, added, err, r.Body(), test.added, want)
		}
	}
}

func TestAddedFieldsAreNamed(t *testing.T) {
	if fields := (dialect.Added{}).Fields(); len(fields) != 0 {
		t.Errorf("nothing was added, and it names %q", fields)
	}
	if fields := (dialect.Added{Usage: true}).Fields(); strings.Join(fields, ",") != "stream_options,include_usage" {
		t.Errorf("got %q", fields)
	}
}

func TestErrorsHaveTheShapeOfTheAPI(t *testing.T) {
	for _, test := range []struct {
		err  dialect.Error
		want string
	}{
		{
			dialect.Error{Status: 401, Code: "invalid_api_key", Message: "a \"b\" <c>"},
			`{"error":{"message":"a \"b\" <c>","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
		},
		{
			dialect.Error{Status: 400, Code: "invalid_request", Param: "model", Message: "m"},
			`{"error":{"message":"m","type":"invalid_request_error","param":"model","code":"invalid_request"}}`,
		},
		{
			dialect.Error{Status: 429, Code: "rate_limited", Message: "m"},
			`{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"rate_limited"}}`,
		},
		{
			dialect.Error{Status: 503, Code: "draining", Message: "m"},
			`{"error":{"message":"m","type":"server_error","param":null,"code":"draining"}}`,
		},
		{
			dialect.Error{Status: 400, Code: "session_stopped", Message: "m", StopCondition: "max_turns"},
			`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"session_stopped","stop_condition":"max_turns"},"stop_condition":"max_turns"}`,
		},
	} {
		if got := string(dialect.Chat{}.ErrorBody(test.err)); got != test.want {
			t.Errorf("got\n%s\nwant\n%s", got, test.want)
		}
		if got := string(dialect.Chat{}.ErrorEvent(test.err)); got != "data: "+test.want+"\n\n" {
			t.Errorf("got event %q", got)
		}
	}
}

func TestContextOverflowIsKnownByItsWording(t *testing.T) {
	for _, body := range []string{
		// OpenAI and its followers
		`{"error":{"message":"Too long.","code":"context_length_exceeded"}}`,
		`This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.`,
		// vLLM
		`The decoder prompt (length 41210) is longer than the maximum model length of 40960.`,
		`You passed 4097 input tokens and requested 1 output tokens. However, the model's context length is only 4096 tokens`,
		// SGLang
		`The input (41210 tokens) is longer than the model's context length (40960 tokens).`,
		`Requested token count exceeds the model's maximum context length of 40960 tokens.`,
		// llama.cpp
		`the request exceeds the available context size, try increasing it`,
		// Anthropic
		`prompt is too long: 210000 tokens > 200000 maximum`,
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
		// Text Generation Inference
		"Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
		"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 1 `max_new_tokens`",
		// others
		`Input is too long for requested model.`,
		`The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).`,
		`This model's maximum prompt length is 131072 but the request contains 140000 tokens.`,
		`THE PROMPT EXCEEDS THE CONTEXT WINDOW`,
	} {
		for _, status := range []int{400, 413, 422} {
			if !dialect.ContextOverflow(status, []byte(body)) {
				t.Errorf("%d %s: is not taken for a context overflow", status, body)
			}
		}
		for _, status := range []int{200, 401, 403, 404, 429, 500, 503} {
			if dialect.ContextOverflow(status, []byte(body)) {
				t.Errorf("%d %s: is taken for a context overflow", status, body)
			}
		}
	}
	for _, body := range []string{
		``, `{"error":{"message":"max_tokens must be at least 1"}}`, `Invalid type for 'messages[0].content'`,
		`Unknown parameter: 'stream_options'`, `The model does not exist`, `Request too large`,
	} {
		if dialect.ContextOverflow(400, []byte(body)) {
			t.Errorf("%s: is taken for a context overflow", body)
		}
	}
}

func TestOnlyKnownDialectsHaveAName(t *testing.T) {
	if d, ok := dialect.ByName("chat"); !ok || d.Name() != "chat" {
		t.Errorf("chat is %v, %v", d, ok)
	}
	for _, name := range []string{"", "Chat", "grpc"} {
		if _, ok := dialect.ByName(name); ok {
			t.Errorf("there is a dialect %q", name)
		}
	}
}
