package admin_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// A body that no decoder and encoder would leave as it is.
const faithful = "{\n  \"b\": 12345678901234567890,\r\n  \"a\": \"<&>\\ud800\u2028\", \"a2\": 1.0e5,\t\"messages\": [] }"

// lines sends a request and decodes each line of its NDJSON answer.
func (h *harness) lines(method, path string, body any, headers ...string) []value {
	h.t.Helper()
	r := h.do(method, path, body, headers...)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/x-ndjson" {
		h.t.Fatalf("%s %s: got %d %s %s", method, path, r.StatusCode, r.Header.Get("Content-Type"), r.body)
	}
	var out []value
	for line := range bytes.Lines(r.body) {
		out = append(out, h.decode(line))
	}
	return out
}

func (h *harness) traced() {
	h.t.Helper()
	h.register(value{"id": "a", "labels": value{"step": "1"}})
	t := h.turn("a", faithful, registry.Response{
		Status: 200, Body: []byte("{ \"id\": \"<1>\", \"choices\": [\n{\"index\": 0, \"finish_reason\": \"stop\", \"message\": {\"content\": \"hi\"}, \"token_ids\": [7, 8], \"logprobs\": {\"content\": []}}], \"prompt_token_ids\": [1, 2] }"),
		Model: "m", UpstreamRequestID: "up-1", Upstream: "default", Replica: "r1",
		Usage:         &registry.Usage{InputTokens: 2, OutputTokens: 2},
		Choices:       []registry.Choice{{Index: 0, FinishReason: "stop"}},
		WeightVersion: registry.VersionSpan{Start: registry.IntVersion(17), End: registry.IntVersion(18)},
		StartedAt:     time.Now(), TimeToFirstEvent: 250 * time.Millisecond, Duration: 1500 * time.Millisecond,
	})
	t.SetDelivered(true)
	h.turn("a", `{"messages":[],"stream":true}`, registry.Response{
		Status: 200, Stream: true, Model: "m",
		Body: []byte("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n" +
			"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
		Choices: []registry.Choice{{Index: 0, FinishReason: "stop"}}, StartedAt: time.Now(),
	})
	h.fail("a", `{"messages":[]}`, registry.Failure{Kind: registry.FailureUpstreamError, Status: 502, Message: "HTML", Received: []byte("<html>\n</html>"), StartedAt: time.Now()})
	h.fail("a", `{"messages":[]}`, registry.Failure{Kind: registry.FailureTimeout, Message: "first byte"})
	h.fail("a", `{"messages":[]}`, registry.Failure{Kind: registry.FailureUpstreamError, Status: 500, Received: []byte("\xff\xfe")})
}

func TestTraceHasEveryFieldAndTheExactBytes(t *testing.T) {
	h := newHarness(t)
	h.traced()
	r := h.do(http.MethodGet, "/sessions/a/trace", nil)
	if !bytes.Contains(r.body, []byte(`"request":`+faithful)) {
		t.Errorf("the request is not in the trace byte for byte: %s", r.body)
	}
	if !bytes.Contains(r.body, []byte(`"response":{ "id": "<1>", "choices": [`+"\n{")) {
		t.Errorf("the response is not in the trace byte for byte: %s", r.body)
	}
	doc := h.decode(r.body)
	if doc["id"] != "a" || at(doc, "session", "turns") != 2.0 || doc["failed_calls_total"] != 3.0 {
		t.Errorf("got %v, %v, %v", doc["id"], doc["session"], doc["failed_calls_total"])
	}
	turns := doc["turns"].([]any)
	first, second := turns[0].(value), turns[1].(value)
	for path, want := range map[string]any{
		"index": 0.0, "parent": nil, "dialect": "chat", "model": "m", "request_id": "req-1", "upstream_request_id": "up-1",
		"usage.input_tokens": 2.0, "usage.output_tokens": 2.0, "weight_version.start": 17.0, "weight_version.end": 18.0,
		"time_to_first_event_seconds": 0.25, "duration_seconds": 1.5, "attempt": 0.0, "upstream": "default", "replica": "r1",
		"delivered": true, "token_ids_complete": true, "extends_parent": false, "stream": false,
	} {
		if got := at(first, strings.Split(path, ".")...); got != want {
			t.Errorf("%s: got %v; want %v", path, got, want)
		}
	}
	c := first["choices"].([]any)[0].(value)
	if c["finish_reason"] != "stop" || fmt.Sprint(c["completion_token_ids"]) != "[7 8]" || c["completion_logprobs"] == nil || fmt.Sprint(first["prompt_token_ids"]) != "[1 2]" {
		t.Errorf("got choice %v, prompt %v", c, first["prompt_token_ids"])
	}
	message := at(second, "response", "choices").([]any)[0].(value)["message"].(value)
	if message["content"] != "Hello" || second["stream"] != true || second["usage"] != nil || second["delivered"] != nil || second["token_ids_complete"] != false {
		t.Errorf("got %v", second)
	}
	failed := doc["failed_calls"].([]any)
	if f := failed[0].(value); f["received"] != "<html>\n</html>" || at(f, "error", "kind") != "upstream_error" || at(f, "error", "status") != 502.0 || at(f, "error", "message") != "HTML" || f["request"] == nil {
		t.Errorf("got %v", f)
	}
	if f := failed[1].(value); f["received"] != nil || f["started_at"] != nil && at(f, "error", "kind") != "timeout" {
		t.Errorf("got %v", f)
	}
	if f := failed[2].(value); f["received"] != nil || f["received_base64"] != "//4=" {
		t.Errorf("got %v", f)
	}
}

func TestTraceAsNDJSONIsOneTurnALine(t *testing.T) {
	h := newHarness(t)
	h.traced()
	lines := h.lines(http.MethodGet, "/sessions/a/trace", nil, "Accept", "application/x-ndjson")
	if len(lines) != 2 || lines[0]["index"] != 0.0 || lines[1]["index"] != 1.0 {
		t.Fatalf("got %v", lines)
	}
	if fmt.Sprint(at(lines[0], "request", "a2")) != "100000" {
		t.Errorf("got %v", lines[0]["request"])
	}
	for _, accept := range []string{"application/json", "*/*", "text/html", "application/x-ndjson;q=0.1, application/json"} {
		if ct := h.do(http.MethodGet, "/sessions/a/trace", nil, "Accept", accept).Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("Accept %s: got %s", accept, ct)
		}
	}
}

func TestTurnsGiveTheExactBytes(t *testing.T) {
	h := newHarness(t)
	h.traced()
	if r := h.do(http.MethodGet, "/sessions/a/turns/0/request", nil); string(r.body) != faithful || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s %q", r.Header.Get("Content-Type"), r.body)
	}
	if r := h.do(http.MethodGet, "/sessions/a/turns/1/response", nil); !strings.HasSuffix(string(r.body), "data: [DONE]\n\n") || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %s %q", r.Header.Get("Content-Type"), r.body)
	}
	if got := h.want(http.StatusOK, http.MethodGet, "/sessions/a/turns/1", nil); got["index"] != 1.0 {
		t.Errorf("got %v", got)
	}
	for _, path := range []string{"2", "2/request", "2/response"} {
		h.problem(http.StatusNotFound, "not_found", http.MethodGet, "/sessions/a/turns/"+path, nil)
	}
	for _, path := range []string{"-1", "one", "1.5"} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodGet, "/sessions/a/turns/"+path, nil)
		if got := h.locations(r); !slices.Contains(got, "path.index") {
			t.Errorf("got %v; want it to name path.index", got)
		}
	}
}

func TestTokenIDsSayWhetherTheyExtendTheParent(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	response := func(prompt, completion string) []byte {
		return []byte(`{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"x"},"token_ids":` + completion + `}],"prompt_token_ids":` + prompt + `}`)
	}
	s, err := h.registry.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range [][]byte{response("[1,2]", "[3]"), response("[1, 2, 3, 4]", "[5]"), response("[1,2,9,4]", "null")} {
		call, err := s.Admit(t.Context(), registry.CallInfo{Dialect: "chat"})
		if err != nil {
			t.Fatal(err)
		}
		request := registry.Request{Body: []byte(`{"messages":[]}`)}
		if i > 0 {
			request.Prefixes = []uint64{1}
		}
		call.Record(request)
		if _, err := call.Commit(registry.Response{Status: 200, Body: body, Choices: []registry.Choice{{FinishReason: "stop", Continuation: uint64(1 - min(i, 1))}}}); err != nil {
			t.Fatal(err)
		}
		call.Close()
	}
	turns := h.want(http.StatusOK, http.MethodGet, "/sessions/a/trace", nil)["turns"].([]any)
	for i, want := range []string{"<nil> false true", "0 true true", "0 false false"} {
		turn := turns[i].(value)
		if got := fmt.Sprint(turn["parent"], turn["extends_parent"], turn["token_ids_complete"]); got != want {
			t.Errorf("turn %d: got %s; want %s", i, got, want)
		}
	}
}

// L52: engines leave ids out of some chunks of tool calls.
func TestTokenIDsAreCompleteOnlyIfTheyAreAsManyAsTheUsageSays(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a"})
	body := []byte(`{"prompt_token_ids":[1,2],"choices":[{"index":0,"token_ids":[3,4]},{"index":1,"token_ids":[5]}]}`)
	for i, test := range []struct {
		usage registry.Usage
		want  bool
	}{
		{registry.Usage{InputTokens: 2, OutputTokens: 3}, true},
		{registry.Usage{InputTokens: 2, OutputTokens: 4}, false},
		{registry.Usage{InputTokens: 3, OutputTokens: 3}, false},
	} {
		h.turn("a", `{"messages":[]}`, registry.Response{Status: 200, Body: body, Usage: &test.usage})
		turn := h.want(http.StatusOK, http.MethodGet, fmt.Sprintf("/sessions/a/turns/%d", i), nil)
		if turn["token_ids_complete"] != test.want {
			t.Errorf("with usage %+v: complete is %v", test.usage, turn["token_ids_complete"])
		}
	}
}

func TestTracesQueryStreamsATraceALine(t *testing.T) {
	h := newHarness(t)
	const sessions, turns = 20, 30
	for i := range sessions {
		id := fmt.Sprintf("s%d", i)
		h.register(value{"id": id, "labels": value{"step": "1"}})
		for range turns {
			h.turn(id, "{\n\"messages\": [\""+strings.Repeat("x", 1000)+"\"]}", registry.Response{Status: 200, Body: []byte(`{}`)})
		}
	}
	lines := h.lines(http.MethodPost, "/traces/query", value{"labels": value{"step": "1"}})
	if len(lines) != sessions || lines[0]["id"] != "s19" {
		t.Errorf("got %d lines", len(lines))
	}
	for _, line := range lines {
		if n := len(line["turns"].([]any)); n != turns {
			t.Errorf("%s: got %d turns; want %d", line["id"], n, turns)
		}
	}
	lines = h.lines(http.MethodPost, "/traces/query", value{"ids": []string{"s3", "nope", "s1"}})
	if len(lines) != 3 || lines[0]["id"] != "s3" || at(lines[1], "error", "code") != "not_found" || lines[1]["id"] != "nope" || lines[2]["id"] != "s1" {
		t.Errorf("got %d lines", len(lines))
	}
}

// The reader takes the first line before the last session is even registered,
// so the answer cannot have been built as a whole.
func TestTracesQueryDoesNotWaitForTheLastTrace(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "first"})
	h.register(value{"id": "big"})
	for range 200 { // more than any buffer between here and there
		h.turn("big", `{"messages":["`+strings.Repeat("x", 100_000)+`"]}`, registry.Response{Status: 200, Body: []byte(`{}`)})
	}
	body, err := json.Marshal(value{"ids": []string{"first", "big", "late"}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/traces/query", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadBytes('\n'); err != nil || h.decode(line)["id"] != "first" {
		t.Fatalf("got %s, %v", line, err)
	}
	h.register(value{"id": "late"})
	if _, err := in.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got := h.decode(line); got["id"] != "late" || got["error"] != nil {
		t.Errorf("got %s; want the session that came while the answer was read", line)
	}
}
