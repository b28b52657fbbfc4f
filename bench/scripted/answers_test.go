package scripted_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

func TestAnswerIsChosenByWhatTheRequestAsksFor(t *testing.T) {
	srv, c := start(t, scripted.New())
	for body, fixture := range map[string]string{
		`{"model":"openai"}`:               "openai/chat.json",
		`{"model":"unheard-of"}`:           "openai/chat.json",
		`{"model":"openai","stream":true}`: "openai/chat.sse",
		`{"stream":true,"stream_options":{"include_usage":true},"model" : "openai"}`: "openai/chat-usage.sse",
		`{"model":"openai","n":2}`:        "openai/n2.json",
		`{"model":"openai","tools":[{}]}`: "openai/tools.json",
		`{"model":"openai","tools":[{}],"messages":[{"role":"tool"}],"stream":true}`:  "openai/answer.sse",
		`{"model":"vllm","return_token_ids":true}`:                                    "vllm/chat-ids.json",
		`{"model":"vllm","stream":true}`:                                              "vllm/chat.sse",
		`{"model":"sglang","stream":true,"stream_options":{"include_usage":true}}`:    "sglang/chat-usage.sse",
		`{"messages":[{"content":"say \"model\":\"vllm\" please"}],"model":"sglang"}`: "sglang/chat.json",
	} {
		get(t, c, srv.URL, body, scripted.Fixture(fixture))
	}
	for body, fixture := range map[string]string{
		`{"model":"openai","logprobs":2}`:                                                       "openai/completions.json",
		`{"model":"vllm","return_token_ids":true,"logprobs":1,"stream":true}`:                   "vllm/completions-ids-logprobs.sse",
		`{"model":"sglang","return_token_ids":true,"stream":true}`:                              "sglang/completions-ids.sse",
		`{"model":"sglang","logprobs":0,"stream":true,"stream_options":{"include_usage":true}}`: "sglang/completions-logprobs-usage.sse",
	} {
		resp, err := c.Post(srv.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(resp); err != nil || !bytes.Equal(got, scripted.Fixture(fixture)) {
			t.Errorf("%s: got %v\n%s\nwant %s", body, err, got, fixture)
		}
	}
	continuous := `{"model":"vllm","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
	get(t, c, srv.URL, continuous, scripted.Fixture("vllm/chat-continuous.sse"))
}

func TestRetryIsAnsweredAfterOneRefusal(t *testing.T) {
	srv, c := start(t, scripted.New())
	for retry, status := range []int{429, 200, 200} {
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(`{"model":"429-once"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Stainless-Retry-Count", fmt.Sprint(retry))
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(resp); err != nil || resp.StatusCode != status {
			t.Errorf("retry %d: got %d, %v; want %d", retry, resp.StatusCode, err, status)
		}
	}
}

func TestSequenceEndsWithItsLastScript(t *testing.T) {
	u := scripted.New()
	u.Sequence("s", scripted.JSON([]byte("1")), scripted.JSON([]byte("2")))
	srv, c := start(t, u)
	for _, want := range []string{"1", "2", "2"} {
		get(t, c, srv.URL, `{"model":"s"}`, []byte(want))
	}
}

func TestUncleanEndsAreUnclean(t *testing.T) {
	srv, c := start(t, scripted.New())
	for model, want := range map[string]error{
		"truncated-length":   io.ErrUnexpectedEOF,
		"truncated-chunked":  io.ErrUnexpectedEOF,
		"stream-abort":       io.ErrUnexpectedEOF,
		"stream-half-event":  io.ErrUnexpectedEOF,
		"stream-reset":       syscall.ECONNRESET,
		"stream-reset-first": syscall.ECONNRESET,
		"reset-json":         syscall.ECONNRESET,
		"reset-at-once":      syscall.ECONNRESET,
		"close-at-once":      io.EOF,
	} {
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"`+model+`"}`)
		if err == nil {
			_, err = read(resp)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v; want %v", model, err, want)
		}
	}
}

func TestEventsBeforeAResetArrive(t *testing.T) {
	srv, c := start(t, scripted.New())
	resp, err := post(t.Context(), t, c, srv.URL, `{"model":"stream-reset"}`)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := read(resp)
	if n := bytes.Count(got, []byte("\n\n")); n != 2 || !bytes.HasPrefix(scripted.Fixture("openai/chat-usage.sse"), got) {
		t.Errorf("got %d events: %q", n, got)
	}
}

func TestEveryFixtureIsWhatItsNameSays(t *testing.T) {
	srv, c := start(t, scripted.New())
	skip := map[string]bool{"stream-60mb": true, "stream-8mb-line": true, "silent": true, "stream-hang": true, "stream-silent": true, "stream-ids-slow": true, "responses-hang": true}
	for _, name := range scripted.New().Names() {
		if strings.Contains(name, " ") || skip[name] {
			continue
		}
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"`+name+`","stream":false}`)
		if err != nil {
			continue // the scripts of TestUncleanEndsAreUnclean
		}
		body, err := read(resp)
		switch typ := resp.Header.Get("Content-Type"); {
		case err != nil || resp.Header.Get("Content-Encoding") != "" || strings.HasPrefix(typ, "text/html"):
		case strings.HasPrefix(typ, "text/event-stream") && len(body) > 0:
			if name != "stream-empty" && !strings.Contains(name, "half") && !bytes.ContainsAny(body[len(body)-1:], "\r\n]") {
				t.Errorf("%s ends in %q", name, body[len(body)-1:])
			}
		case name == "stream-empty":
		case name == "not-json" || name == "empty" || strings.HasPrefix(name, "truncated"):
			if json.Valid(body) {
				t.Errorf("%s: valid JSON", name)
			}
		case !json.Valid(body):
			t.Errorf("%s: not JSON: %q", name, body)
		}
	}
}

func TestOddStreamsAreSentByteForByte(t *testing.T) {
	srv, c := start(t, scripted.New())
	for _, dir := range []string{"framing", "ends"} {
		files, err := os.ReadDir("testdata/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(file.Name(), ".sse")
			if name == "half-event" { // its connection is closed inside the event
				continue
			}
			get(t, c, srv.URL, `{"model":"stream-`+name+`"}`, scripted.Fixture(dir+"/"+file.Name()))
		}
	}
}

func TestEveryScriptIsDescribed(t *testing.T) {
	readme := string(scripted.Fixture("README.md"))
	families := []string{"stream-", "400-", "openai-"} // described by their prefix
	for _, name := range scripted.New().Names() {
		ok := strings.Contains(readme, "`"+name+"`") || strings.Contains(name, "/")
		for _, f := range families {
			ok = ok || strings.HasPrefix(name, f)
		}
		if !ok {
			t.Errorf("testdata/README.md does not tell what %s does", name)
		}
	}
}

func TestCompressedAnswersDecode(t *testing.T) {
	srv, c := start(t, scripted.New())
	for model, fixture := range map[string]string{
		"gzip": "openai/chat.json", "gzip-stream": "openai/chat-usage.sse", "gzip-error": "errors/404.json",
	} {
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"`+model+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, scripted.Fixture(fixture)) {
			t.Errorf("%s: %v, %q", model, err, got)
		}
		resp.Body.Close()
	}
}

func TestBigStreamsHaveTheirSizes(t *testing.T) {
	srv, c := start(t, scripted.New())
	for model, size := range map[string]int64{"stream-8mb-line": 8 << 20, "stream-60mb": 60 << 20} {
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"`+model+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n < size || n > size+size/50 {
			t.Errorf("%s: %d bytes, %v", model, n, err)
		}
		resp.Body.Close()
	}
}
