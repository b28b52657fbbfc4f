package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/proxy/sse"
)

// FuzzChatStream checks that no stream makes the parser panic, that every byte
// of it is forwarded, held, dropped or replaced by less, and that what it
// assembles to is JSON.
func FuzzChatStream(f *testing.F) {
	for _, name := range []string{
		"openai/chat-usage.sse", "openai/tools.sse", "openai/n2-usage.sse", "openai/logprobs.sse", "vllm/chat-ids-usage.sse", "sglang/abort.sse",
		"framing/crlf.sse", "framing/cr.sse", "framing/bom.sse", "framing/comments.sse", "framing/no-space.sse", "framing/event-lines.sse",
		"ends/error-after-text-done.sse", "ends/half-event.sse", "json/exact.sse",
	} {
		f.Add(scripted.Fixture(name), true)
		f.Add(scripted.Fixture(name), false)
	}
	f.Add([]byte("data:{\"usage\"0"), true)
	f.Add([]byte("data: {\"usage\":null,\"usage\":{}}\n\ndata: {\"choices\":{},\"usage\":{}}\n\ndata\n\n"), true)
	f.Add([]byte("data: {\"choices\":[{\"index\":-9,\"delta\":{\"tool_calls\":[[],{\"index\":1e9}],\"function_call\":{\"name\":1}}}]}\n\n"), true)
	f.Fuzz(func(t *testing.T, raw []byte, added bool) {
		original := bytes.Clone(raw)
		r, err := dialect.Chat{}.Parse([]byte(`{`+hi+`,"stream":true}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := dialect.Chat{}.Stream(r, dialect.Added{Usage: added}, dialect.Chat{}.Conversation(r))
		var accounted int
		held := false
		for _, event := range split(raw) {
			action, replacement := s.Event(event)
			switch action {
			case dialect.Forward, dialect.Hold:
			case dialect.Replace:
				if !added || len(replacement) >= len(event) || !bytes.Contains(event, []byte("usage")) && !bytes.Contains(event, []byte(`\u`)) {
					t.Errorf("%q is replaced by %q", event, replacement)
				}
			case dialect.Drop:
				if !added || s.Result().Usage == nil {
					t.Errorf("%q is dropped", event)
				}
			case dialect.Abort:
				if !s.Result().Aborted || s.Complete() {
					t.Errorf("%q aborts a stream that is not aborted", event)
				}
			default:
				t.Errorf("%q: action %d", event, action)
			}
			if held && action != dialect.Hold || action == dialect.Hold && !s.Terminal() {
				t.Errorf("%q: action %d after the terminal event", event, action)
			}
			held = held || action == dialect.Hold
			accounted += len(event)
		}
		if accounted != len(raw) || !bytes.Equal(raw, original) {
			t.Errorf("%d of %d bytes are accounted for, changed is %v", accounted, len(raw), !bytes.Equal(raw, original))
		}
		if result := s.Result(); s.Complete() && (result.Failure != nil || result.Aborted) {
			t.Errorf("a failed stream is complete: %+v", result)
		}
		assembled, err := dialect.Chat{}.Assemble(raw)
		if err == nil && !json.Valid(assembled) {
			t.Errorf("assembled to %s", assembled)
		}
		if !bytes.Equal(raw, original) {
			t.Error("the recorded stream was changed")
		}
		dialect.Chat{}.Inspect(assembled)
	})
}

// FuzzCapturedStream checks that no stream makes the editing panic, that what is
// left of it has no more than there was, and that its events are JSON if they
// were.
func FuzzCapturedStream(f *testing.F) {
	for _, name := range []string{
		"vllm/chat-ids-logprobs-usage.sse", "vllm/completions-ids-logprobs-usage.sse", "sglang/completions-ids-logprobs-usage.sse",
		"sglang/chat-logprobs.sse", "openai/tools-usage.sse", "framing/crlf.sse", "json/exact.sse",
	} {
		f.Add(scripted.Fixture(name), uint8(0b111111))
		f.Add(scripted.Fixture(name), uint8(0b011110))
	}
	f.Add([]byte("data: {\"choices\":[7,{\"token_ids\":[1],\"token_ids\":2},[]],\"prompt_token_ids\":{},\"logprobs\":1}\n\n"), uint8(0xff))
	f.Fuzz(func(t *testing.T, raw []byte, bits uint8) {
		original := bytes.Clone(raw)
		added := dialect.AddedOf(uint32(bits))
		r, err := dialect.Completions{}.Parse([]byte(`{"prompt":[1,2],"stream":true}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := dialect.Completions{}.Conversation(r)
		s := dialect.Completions{}.Stream(r, added, c)
		for _, event := range split(raw) {
			action, replacement := s.Event(event)
			if action != dialect.Replace {
				continue
			}
			// A number or an empty value that becomes null grows.
			if grown := bytes.Count(event, []byte("token_ids")) + bytes.Count(event, []byte("logprobs")) + bytes.Count(event, []byte(`\u`)); len(replacement) > len(event)+3*grown {
				t.Errorf("%q is replaced by %q", event, replacement)
			}
			if before, after := sse.Data(event), sse.Data(replacement); json.Valid(before) && !json.Valid(after) {
				t.Errorf("%q is replaced by %q, which is no JSON", before, after)
			}
		}
		s.Result()
		if !bytes.Equal(raw, original) {
			t.Error("the recorded stream was changed")
		}
		if assembled, err := (dialect.Completions{}).Assemble(raw); err == nil {
			dialect.Completions{}.Inspect(assembled)
			if visible := (dialect.Completions{}).Visible(assembled, added); !json.Valid(visible) {
				t.Errorf("%s is seen as %s", assembled, visible)
			}
		}
	})
}

// FuzzTextContinues checks that a prompt goes on with another and its completion
// exactly if it begins with both, wherever the runes and the escapes are.
func FuzzTextContinues(f *testing.F) {
	f.Add("Hello,", " world.", "!", true)
	f.Add("caf\u00e9", "\xff", "\u2028", false)
	f.Add("", "", "", false)
	f.Add("a\\u00", "e9", "\"", true)
	f.Fuzz(func(t *testing.T, prompt, completion, rest string, echo bool) {
		quoted := func(s string) string { return string(rawjson.Quote(nil, s)) }
		conversation := func(prompt string) dialect.Conversation {
			r, err := dialect.Completions{}.Parse(fmt.Appendf(nil, `{"prompt":%s,"echo":%v}`, quoted(prompt), echo), nil)
			if err != nil {
				t.Fatal(err)
			}
			return dialect.Completions{}.Conversation(r)
		}
		text := completion
		if echo {
			text = prompt + completion
		}
		result, err := dialect.Completions{}.Response([]byte(`{"choices":[{"text":`+quoted(text)+`}]}`), conversation(prompt))
		if err != nil {
			t.Fatal(err)
		}
		choice := result.Choices[0]
		for _, next := range []string{prompt + completion + rest, prompt + rest, rest} {
			prefixes := conversation(next).TextPrefixes()([]int{choice.TextLength})
			want := strings.HasPrefix(next, prompt+completion)
			// Other bytes are replaced, differently where a text was cut.
			if got := slices.Contains(prefixes, choice.Continuation); got != want && utf8.ValidString(prompt) && utf8.ValidString(completion) && utf8.ValidString(rest) {
				t.Errorf("%q goes on with %q and %q: %v, want %v", next, prompt, completion, got, want)
			}
		}
	})
}

// FuzzResponsesStream checks that no stream makes the parser panic or loses an
// event, that what follows the end is held, and that what it assembles to is JSON.
func FuzzResponsesStream(f *testing.F) {
	for _, name := range []string{"", "-tools", "-incomplete", "-failed", "-error", "-unknown", "-empty-output", "-no-terminal"} {
		f.Add(scripted.Fixture("openai/responses" + name + ".sse"))
	}
	f.Add([]byte("data: {\"type\":\"response.output_item.done\",\"output_index\":-1,\"item\":[]}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":7}}\n\n"))
	f.Add([]byte("data: {\"type\":\"response.completed\",\"response\":[]}\n\ndata: [DONE]\n\ndata: {\"error\":1}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		original := bytes.Clone(raw)
		s := dialect.Responses{}.Stream(&dialect.Request{}, dialect.Added{}, dialect.Conversation{})
		for _, event := range split(raw) {
			ended := s.Terminal()
			action, replacement := s.Event(event)
			if replacement != nil || action == dialect.Drop || ended && action != dialect.Hold {
				t.Errorf("%q: action %d, replaced by %q", event, action, replacement)
			}
			if action == dialect.Abort && (!s.Result().Aborted || s.Complete()) {
				t.Errorf("%q aborts a stream that is not aborted", event)
			}
		}
		result := s.Result()
		if s.Complete() && s.Failure() != nil {
			t.Errorf("a failed stream is complete: %+v", result)
		}
		for _, choice := range result.Choices {
			choice.Text()
		}
		assembled, err := dialect.Responses{}.Assemble(raw)
		if err == nil && !json.Valid(assembled) {
			t.Errorf("assembled to %s", assembled)
		}
		dialect.Responses{}.Inspect(assembled)
		if !bytes.Equal(raw, original) {
			t.Error("the recorded stream was changed")
		}
	})
}

// FuzzResponsesRequest checks that no request makes the parser panic, and that
// none that names something by its id alone is taken for one that does not.
func FuzzResponsesRequest(f *testing.F) {
	for _, body := range []string{
		`{"input":"hi"}`, `{"input":[{"role":"user","content":"a"},{"id":"x"},{"type":"item_reference","id":"y"}],"previous_response_id":"z"}`,
		`{"input":[{"type":"reasoning","id":"rs","content":null,"encrypted_content":""},7,[],{"type":7,"id":8}],"background":false}`,
		`{"input":[{"type":"function_call","call_id":1,"name":2,"arguments":3},{"type":"function_call_output","output":[{"text":1}]}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := dialect.Responses{}.Parse(body, nil)
		if err != nil {
			return
		}
		dialect.Responses{}.Conversation(r)
		var plain struct {
			Previous string `json:"previous_response_id"`
			Input    []struct{ Type, ID string }
		}
		if json.Unmarshal(body, &plain) != nil {
			return
		}
		want := 0
		if plain.Previous != "" {
			want++
		}
		for _, item := range plain.Input {
			if item.Type == "item_reference" && item.ID != "" {
				want++
			}
		}
		if len(r.References) < want {
			t.Errorf("%s has the references %+v, want at least %d", body, r.References, want)
		}
	})
}

// FuzzConversation checks that no request makes the parser panic, that overrides
// leave a request that parses, and that its conversation does not change when
// the JSON is written again.
func FuzzConversation(f *testing.F) {
	for _, messages := range same {
		for _, message := range messages {
			f.Add([]byte(`{"model":"m","messages":[` + message + `],"stream":true}`))
		}
	}
	f.Add([]byte(`{"messages":[1,null,"x",[],{"role":1,"content":{"text":2},"tool_calls":{"id":[]}}]}`))
	f.Add([]byte(`{"messages":[{"tool_calls":[{"id":null,"function":"f"},7],"function_call":[]}],"max_tokens":1,"max_completion_tokens":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := dialect.Chat{}.Parse(body, nil)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was taken for JSON", body)
		}
		want := dialect.Chat{}.Conversation(r).Prefixes
		if len(want) == 0 {
			t.Error("there are no links")
		}
		_, err = dialect.Chat{}.Override(r, dialect.Overrides{
			Model: "other", Usage: dialect.UsageRequired,
			Sampling: map[string]json.RawMessage{"max_tokens": json.RawMessage("7"), "temperature": json.RawMessage("1.0")},
		})
		if err != nil {
			return
		}
		again, err := dialect.Chat{}.Parse(r.Body(), nil)
		if err != nil || again.Model != "other" {
			t.Fatalf("%q became %q: %v", body, r.Body(), err)
		}
		if got := (dialect.Chat{}).Conversation(again).Prefixes; !slices.Equal(got, want) {
			t.Errorf("%q became %q, another conversation", body, r.Body())
		}
	})
}
