package dialect_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/sse"
	"github.com/muxproxy/muxproxy/registry"
)

// messagesTwins are the messages that are recorded as JSON and as a stream.
var messagesTwins = []string{"message", "tools", "answer", "thinking", "max-tokens", "server-tools", "unknown"}

// followMessages plays a stream as the answer to messagesQuestion and returns
// what the client has of it before the turn is committed.
func followMessages(t *testing.T, stream []byte) (s dialect.Stream, passed []byte) {
	t.Helper()
	r := parseMessages(t, messagesQuestion)
	s = dialect.Messages{}.Stream(r, dialect.Added{}, dialect.Messages{}.Conversation(r))
	var scanner sse.Scanner
	for len(stream) > 0 {
		n := scanner.Next(stream)
		if n == 0 {
			t.Fatalf("no event in %q", stream)
		}
		action, _ := s.Event(stream[:n])
		switch action {
		case dialect.Forward:
			passed = append(passed, stream[:n]...)
		case dialect.Hold, dialect.Abort:
			return s, passed
		default:
			t.Fatalf("action %d for %q", action, stream[:n])
		}
		stream = stream[n:]
	}
	return s, passed
}

func TestMessagesStreamAgreesWithItsJSON(t *testing.T) {
	for _, name := range messagesTwins {
		s, _ := followMessages(t, scripted.Fixture("anthropic/"+name+".sse"))
		if got, want := comparableOf(s.Result()), comparableOf(messagesResult(t, name)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the stream amounts to %+v, usage %+v; the JSON to %+v, usage %+v", name, got, got.Usage, want, want.Usage)
		}
	}
}

func TestMessagesStreamAssemblesIntoItsJSON(t *testing.T) {
	for _, name := range messagesTwins {
		got, err := dialect.Messages{}.Assemble(scripted.Fixture("anthropic/" + name + ".sse"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := scripted.Fixture("anthropic/" + name + ".json")
		if name == "message" { // whose stream, as recorded, lacks what is told of the cache's lifetimes
			want = bytes.Replace(want, []byte(`"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},`), nil, 1)
		}
		if a, b := decoded(t, got), decoded(t, want); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// decoded is a JSON value with its numbers as they were written.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

func TestMessagesStopIsHeldAndEndsTheStream(t *testing.T) {
	for _, name := range messagesTwins {
		stream := scripted.Fixture("anthropic/" + name + ".sse")
		s, passed := followMessages(t, stream)
		want, _, _ := bytes.Cut(stream, []byte("event: message_stop"))
		if !bytes.Equal(passed, want) {
			t.Errorf("%s: before the commit the client has\n%s", name, passed)
		}
		if !s.Terminal() || !s.Complete() {
			t.Errorf("%s: terminal %v, complete %v", name, s.Terminal(), s.Complete())
		}
		if action, _ := s.Event([]byte("event: ping\ndata: {\"type\":\"ping\"}\n\n")); action != dialect.Hold {
			t.Errorf("%s: what follows message_stop is not held", name)
		}
	}
}

func TestMessagesStreamWithoutItsStopIsNotComplete(t *testing.T) {
	stream := scripted.Fixture("anthropic/no-stop.sse")
	s, passed := followMessages(t, stream)
	if s.Terminal() || s.Complete() || !bytes.Equal(passed, stream) {
		t.Errorf("terminal %v, complete %v", s.Terminal(), s.Complete())
	}
}

func TestMessagesErrorEventIsAFailure(t *testing.T) {
	for _, name := range []string{"error-in-stream", "error-after-text"} {
		stream := scripted.Fixture("anthropic/" + name + ".sse")
		s, passed := followMessages(t, stream)
		failure := s.Result().Failure
		if failure == nil || failure.Message != "Overloaded" || s.Complete() || !bytes.Equal(passed, stream) {
			t.Errorf("%s: failure %+v, complete %v", name, failure, s.Complete())
		}
	}
	s, _ := followMessages(t, []byte("data: {\"error\":{\"message\":\"untyped\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"))
	if failure := s.Result().Failure; failure == nil || failure.Message != "untyped" || s.Complete() {
		t.Errorf("failure %+v, complete %v", failure, s.Complete())
	}
}

func TestMessagesTypeInTheDataDecides(t *testing.T) {
	stream := scripted.Fixture("anthropic/tools.sse")
	var unnamed bytes.Buffer
	for line := range bytes.Lines(stream) {
		if !bytes.HasPrefix(line, []byte("event:")) {
			unnamed.Write(line)
		}
	}
	s, _ := followMessages(t, unnamed.Bytes())
	if got, want := comparableOf(s.Result()), comparableOf(messagesResult(t, "tools")); !reflect.DeepEqual(got, want) || !s.Complete() {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMessagesAbortedStreamIsBrokenOff(t *testing.T) {
	aborted := bytes.Replace(scripted.Fixture("anthropic/message.sse"), []byte(`"end_turn"`), []byte(`"abort"`), 1)
	s, passed := followMessages(t, aborted)
	if !s.Result().Aborted || s.Complete() || bytes.Contains(passed, []byte("message_delta")) {
		t.Errorf("got %+v; the client has\n%s", s.Result(), passed)
	}
}

// L24: usage needs message_start and message_delta.
func TestMessagesStreamUsageComesFromItsStartAndItsEnd(t *testing.T) {
	const start = `{"input_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":300,"output_tokens":1}`
	for _, tt := range []struct {
		end  string
		want registry.Usage
	}{
		{`{"output_tokens":7}`, registry.Usage{InputTokens: 321, OutputTokens: 7, CachedTokens: 20}},
		{`{"input_tokens":2,"output_tokens":7}`, registry.Usage{InputTokens: 322, OutputTokens: 7, CachedTokens: 20}},
		{`{"input_tokens":2,"cache_read_input_tokens":null,"output_tokens":7}`, registry.Usage{InputTokens: 322, OutputTokens: 7, CachedTokens: 20}},
		{`{"input_tokens":2,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":7}`, registry.Usage{InputTokens: 2, OutputTokens: 7}},
		{`null`, registry.Usage{InputTokens: 321, OutputTokens: 1, CachedTokens: 20}},
	} {
		s, _ := followMessages(t, []byte(
			`data: {"type":"message_start","message":{"usage":`+start+"}}\n\n"+
				`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+tt.end+"}\n\n"))
		if got := s.Result().Usage; got == nil || *got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.end, got, tt.want)
		}
	}
}

func TestMessagesToolInputMayComeWhole(t *testing.T) {
	stream := []byte(`data: {"type":"message_start","message":{"model":"m","content":[]}}` + "\n\n" +
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}` + "\n\n" +
		`data: {"type":"message_stop"}` + "\n\n")
	s, _ := followMessages(t, stream)
	next := messagesPrefixes(t, `{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]}`)
	if got := s.Result().Choices[0].Continuation; got != next[1] {
		t.Error("the request does not continue the stream")
	}
	whole, err := dialect.Messages{}.Assemble(stream)
	if err != nil || !strings.Contains(string(whole), `"input":{"a":1}`) {
		t.Errorf("got %s, %v", whole, err)
	}
}

func TestMessagesInputThatWasCutOffIsLeftEmpty(t *testing.T) {
	stream := scripted.Fixture("anthropic/tools.sse")
	cut := stream[:bytes.Index(stream, []byte(`"partial_json":"ty`))]
	got, err := dialect.Messages{}.Assemble(cut[:bytes.LastIndex(cut, []byte("event:"))])
	if err != nil || !strings.HasSuffix(string(got), `"name":"get_weather","input":{}}]`+tail(t, got)) {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := (dialect.Messages{}).Assemble([]byte(": nothing\n\n")); err == nil {
		t.Error("a stream without events amounts to a message")
	}
}

// tail is what follows the content of a message.
func tail(t *testing.T, message []byte) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(message), "}]")
	if !ok {
		t.Fatalf("no content in %s", message)
	}
	return rest
}

func FuzzMessagesStream(f *testing.F) {
	for _, name := range append([]string{"error-in-stream", "error-after-text", "no-stop"}, messagesTwins...) {
		f.Add(scripted.Fixture("anthropic/" + name + ".sse"))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		original := bytes.Clone(stream)
		d := dialect.Messages{}
		s := d.Stream(&dialect.Request{}, dialect.Added{}, dialect.Conversation{})
		var scanner sse.Scanner
		for rest := stream; len(rest) > 0; {
			n := scanner.Next(rest)
			if n == 0 {
				break
			}
			if action, replacement := s.Event(rest[:n]); replacement != nil {
				t.Errorf("action %d replaces an event", action)
			}
			rest = rest[n:]
		}
		s.Result()
		if s.Complete() && !s.Terminal() {
			t.Error("complete without its terminal event")
		}
		if whole, err := d.Assemble(stream); err == nil {
			if !json.Valid(whole) {
				t.Errorf("assembled %s", whole)
			}
			d.Inspect(whole)
		}
		if !bytes.Equal(stream, original) {
			t.Error("the stream was changed")
		}
	})
}

func FuzzMessagesRequest(f *testing.F) {
	f.Add([]byte(messagesQuestion))
	f.Add([]byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]}]}`))
	for _, name := range messagesTwins {
		f.Add(scripted.Fixture("anthropic/" + name + ".json"))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := dialect.Messages{}
		if _, err := d.Response(body, dialect.Conversation{}); err == nil {
			d.Inspect(body)
		}
		r, err := d.Parse(body, nil)
		if err != nil {
			return
		}
		before := d.Conversation(r)
		if _, err := d.Override(r, dialect.Overrides{Model: "other"}); err != nil || !json.Valid(r.Body()) {
			t.Fatalf("overridden to %s, %v", r.Body(), err)
		}
		if after := d.Conversation(r); !reflect.DeepEqual(before, after) {
			t.Errorf("the model changes the conversation: %v, %v", before, after)
		}
	})
}
