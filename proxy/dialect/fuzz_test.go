package dialect_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
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
	f.Add([]byte("data: {\"usage\":null,\"usage\":{}}\n\ndata: {\"choices\":{},\"usage\":{}}\n\ndata\n\n"), true)
	f.Add([]byte("data: {\"choices\":[{\"index\":-9,\"delta\":{\"tool_calls\":[[],{\"index\":1e9}],\"function_call\":{\"name\":1}}}]}\n\n"), true)
	f.Fuzz(func(t *testing.T, raw []byte, added bool) {
		original := bytes.Clone(raw)
		r, err := dialect.Chat{}.Parse([]byte(`{` + hi + `,"stream":true}`))
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
		r, err := dialect.Chat{}.Parse(body)
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
		again, err := dialect.Chat{}.Parse(r.Body())
		if err != nil || again.Model != "other" {
			t.Fatalf("%q became %q: %v", body, r.Body(), err)
		}
		if got := (dialect.Chat{}).Conversation(again).Prefixes; !slices.Equal(got, want) {
			t.Errorf("%q became %q, another conversation", body, r.Body())
		}
	})
}
