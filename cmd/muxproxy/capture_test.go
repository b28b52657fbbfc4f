package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// A rollout in front of vLLM whose harness asks for no tokens: the trace has
// them, and says how the turns' prompts go on with each other.
func TestTraceHasTheTokensThatTheHarnessDidNotAskFor(t *testing.T) {
	t.Parallel()
	upstream := scripted.New()
	chunk := func(rest string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"q","choices":[{"index":0,` + rest + "}]"
	}
	stream := func(prompt, completion string) scripted.Script {
		return scripted.SSE([]byte(chunk(`"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`) + `,"prompt_token_ids":` + prompt + "}\n\n" +
			chunk(`"delta":{"content":"x"},"logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[]}]},"finish_reason":"stop","stop_reason":null,"token_ids":`+completion) + "}\n\n" +
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"q","choices":[],"usage":{"prompt_tokens":` + fmt.Sprint(strings.Count(prompt, ",")+1) + `,"completion_tokens":1,"total_tokens":0}}` + "\n\ndata: [DONE]\n\n"))
	}
	upstream.Sequence("q", stream("[1,2]", "[3]"), stream("[1,2,3,4,5]", "[6]"), stream("[1,2,9]", "[6]"))
	srv, err := scripted.Start(upstream, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": srv.URL, "MUXPROXY_UPSTREAM_STYLE": "vllm", "MUXPROXY_STATE_DIR": t.TempDir()})
	s := d.register(t, `{"id":"a","capture":{"token_ids":true,"logprobs":true}}`)

	said := `{"role":"assistant","content":"x"},{"role":"user","content":"more"}`
	messages := `{"role":"user","content":"hi"}`
	for range 3 {
		body := `{"model":"q","messages":[` + messages + `],"stream":true}`
		answer := callOnce(t, s, body)
		if strings.Contains(answer, "-0.5") || strings.Contains(answer, "_ids\":[") || strings.Contains(answer, "usage") || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
			t.Errorf("the harness sees\n%s", answer)
		}
		if up := string(upstream.Last().Body); !strings.Contains(up, `"return_token_ids":true`) || !strings.Contains(up, `"logprobs":true`) {
			t.Errorf("the upstream was asked %s", up)
		}
		messages += "," + said
	}
	var trace struct {
		Turns []struct {
			PromptTokenIDs   []int `json:"prompt_token_ids"`
			ExtendsParent    bool  `json:"extends_parent"`
			TokenIDsComplete bool  `json:"token_ids_complete"`
			Parent           *int
			Choices          []struct {
				CompletionTokenIDs []int `json:"completion_token_ids"`
				CompletionLogprobs struct {
					Content []struct{ Logprob float64 }
				} `json:"completion_logprobs"`
			}
		}
	}
	status, raw := d.get(t, "/sessions/a/trace")
	if err := json.Unmarshal(raw, &trace); err != nil || status != http.StatusOK || len(trace.Turns) != 3 {
		t.Fatalf("%d, %v: %s", status, err, raw)
	}
	var got []string
	for _, turn := range trace.Turns {
		c := turn.Choices[0]
		got = append(got, fmt.Sprint(turn.PromptTokenIDs, c.CompletionTokenIDs, c.CompletionLogprobs.Content, turn.ExtendsParent, turn.TokenIDsComplete, turn.Parent != nil))
	}
	want := []string{"[1 2] [3] [{-0.5}] false true false", "[1 2 3 4 5] [6] [{-0.5}] true true true", "[1 2 9] [6] [{-0.5}] false true true"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A style that is forgotten shows where the session is registered, and nothing is
// lost once the upstream is put with the right one.
func TestForgottenStyleIsWarnedOfUntilTheUpstreamHasIt(t *testing.T) {
	t.Parallel()
	upstream := scripted.New()
	srv, err := scripted.Start(upstream, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": srv.URL})
	s := d.register(t, `{"id":"a","capture":{"token_ids":true}}`)
	d.waitForLine(t, `"warning":"capture.token_ids: `)
	for _, step := range []struct{ style, model, before, after string }{
		{"openai", "vllm", "is openai", "is openai"},
		{"vllm", "vllm", "", ""},
		{"vllm", "refuses-token-ids", "", "has refused"},
	} {
		status, raw := d.do(t, http.MethodPut, "/upstreams/default", `{"replicas":[{"url":"`+srv.URL+`"}],"style":"`+step.style+`"}`)
		if status != http.StatusOK {
			t.Fatalf("PUT: got %d %s", status, raw)
		}
		before := d.warningsOf(t, "a")
		callOnce(t, s, `{"model":"`+step.model+`","messages":[{"role":"user","content":"hi"}]}`)
		for _, got := range []struct{ got, want string }{{before, step.before}, {d.warningsOf(t, "a"), step.after}} {
			if !strings.Contains(got.got, got.want) || (got.got == "") != (got.want == "") {
				t.Errorf("%+v: got %q; want %q", step, got.got, got.want)
			}
		}
	}
	_, raw := d.get(t, "/sessions/a/trace")
	var trace struct {
		Turns []struct {
			Complete bool `json:"token_ids_complete"`
		}
	}
	if err := json.Unmarshal(raw, &trace); err != nil || fmt.Sprint(trace.Turns) != "[{false} {true} {false}]" {
		t.Errorf("got %v, %v; want the second turn with its ids", trace, err)
	}
}

func (d *daemon) warningsOf(t *testing.T, id string) string {
	t.Helper()
	var shown struct{ Warnings []string }
	status, raw := d.get(t, "/sessions/"+id)
	if err := json.Unmarshal(raw, &shown); err != nil || status != http.StatusOK || shown.Warnings == nil {
		t.Fatalf("GET: got %d %s, %v", status, raw, err)
	}
	return strings.Join(shown.Warnings, "; ")
}

// callOnce makes a chat call of the session's and returns the answer's body.
func callOnce(t *testing.T, s session, body string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.BaseURL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("got %d, %v: %s", res.StatusCode, err, answer)
	}
	return string(answer)
}
