package registry_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// conversation builds requests as an agent does: the whole history, every time.
type conversation struct {
	messages []string
	hashes   []uint64
}

func (c *conversation) say(role, text string) {
	message := fmt.Sprintf(`{"role":%q,"content":%q}`, role, text)
	hash := uint64(14695981039346656037)
	if len(c.hashes) > 0 {
		hash = c.hashes[len(c.hashes)-1]
	}
	for _, b := range []byte(message) {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	c.messages = append(c.messages, message)
	c.hashes = append(c.hashes, hash)
}

func (c *conversation) fork() *conversation {
	return &conversation{slices.Clone(c.messages), slices.Clone(c.hashes)}
}

var tools = `[{"type":"function","function":{"name":"search","description":"` + strings.Repeat("x", 2000) + `"}}]`

func (c *conversation) request() registry.Request {
	messages := "[" + strings.Join(c.messages, ",") + "]"
	body := `{"model":"m","messages":` + messages + `,"tools":` + tools + `,"stream":true}`
	at := strings.Index(body, messages)
	toolsAt := at + len(messages) + len(`,"tools":`)
	return registry.Request{
		Body: []byte(body), Model: "m",
		Shared:   []registry.Part{{Key: "messages", Start: at, End: at + len(messages)}, {Key: "tools", Start: toolsAt, End: toolsAt + len(tools)}},
		Prefixes: slices.Clone(c.hashes),
	}
}

// turn makes the conversation's next turn, with the answer, and adds it to the conversation.
func (c *conversation) turn(tb testing.TB, s *registry.Session, answer string, usage *registry.Usage) *registry.Turn {
	tb.Helper()
	call := admit(tb, s)
	request := c.request()
	call.Record(request)
	clear(request.Body)
	c.say("assistant", answer)
	return commit(tb, call, registry.Response{
		Status: 200, Body: []byte(`{"choices":[` + c.messages[len(c.messages)-1] + `]}`), Usage: usage,
		Choices: []registry.Choice{{Text: said(answer), Continuation: c.hashes[len(c.hashes)-1]}},
	})
}

func wantParent(tb testing.TB, turn *registry.Turn, want int) {
	tb.Helper()
	got := -1
	if turn.Parent != nil {
		got = *turn.Parent
	}
	if got != want {
		tb.Errorf("parent of turn %d is %d; want %d", turn.Index, got, want)
	}
}

func TestParentIsTheTurnWithTheLongestContinuedConversation(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	main := &conversation{}
	main.say("user", "task")
	wantParent(t, main.turn(t, s, "one", nil), -1)
	main.say("user", "next")
	branch := main.fork()
	wantParent(t, main.turn(t, s, "two", nil), 0)
	branch.messages[len(branch.messages)-1] = ""
	branch.messages, branch.hashes = branch.messages[:2], branch.hashes[:2]
	branch.say("user", "another way")
	wantParent(t, branch.turn(t, s, "three", nil), 0)
	main.say("user", "more")
	wantParent(t, main.turn(t, s, "four", nil), 1)
	branch.say("user", "more")
	wantParent(t, branch.turn(t, s, "five", nil), 2)

	compacted := &conversation{}
	compacted.say("user", "summary of what happened")
	wantParent(t, compacted.turn(t, s, "six", nil), -1)
	compacted.say("user", "go on")
	wantParent(t, compacted.turn(t, s, "seven", nil), 5)
}

func TestParentOfARepeatedConversationIsTheNewest(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	c := &conversation{}
	c.say("user", "task")
	again := c.fork()
	c.turn(t, s, "same", nil)
	again.turn(t, s, "same", nil)
	c.say("user", "next")
	wantParent(t, c.turn(t, s, "x", nil), 1)
}

func TestUsageIsCountedOnceOverBranches(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	main := &conversation{}
	main.say("user", "task")
	main.turn(t, s, "one", &registry.Usage{InputTokens: 100, OutputTokens: 10, CachedTokens: 5, ReasoningTokens: 3})
	main.say("user", "next")
	branch := main.fork()
	main.turn(t, s, "two", &registry.Usage{InputTokens: 130, OutputTokens: 10})   // 20 new
	branch.turn(t, s, "two'", &registry.Usage{InputTokens: 150, OutputTokens: 7}) // 40 new
	main.say("user", "more")
	main.turn(t, s, "three", nil) // unknown
	main.say("user", "more")
	main.turn(t, s, "four", &registry.Usage{InputTokens: 200, OutputTokens: 1}) // 60 beyond turn two
	branch.say("user", "shorter")
	branch.turn(t, s, "five", &registry.Usage{InputTokens: 50, OutputTokens: 2}) // less than its parent: nothing new
	want := registry.TotalUsage{InputTokens: 100 + 20 + 40 + 60, OutputTokens: 30, CachedTokens: 5, ReasoningTokens: 3, BilledInputTokens: 630}
	if got := s.Summary().Usage; got != want {
		t.Errorf("usage is %+v; want %+v", got, want)
	}
}

func TestTurnCanBeReadWhenCommitReturns(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	for i := range 10 {
		call, err := s.Admit(t.Context(), registry.CallInfo{Dialect: "chat", Route: "/v1/chat/completions", RequestID: "r", Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Appendf(nil, `{"i":%d}`, i)
		call.Record(registry.Request{Body: body, Model: "m"})
		committed := commit(t, call, registry.Response{
			Status: 200, Body: []byte("answer"), Upstream: "default", Duration: time.Second,
			WeightVersion: registry.VersionSpan{Start: registry.IntVersion(int64(i)), End: registry.IntVersion(int64(i + 1))},
		})
		turn, err := s.Turn(i)
		if err != nil || turn != committed || !bytes.Equal(turn.Request(), body) || string(turn.Response()) != "answer" ||
			turn.Dialect != "chat" || turn.RequestID != "r" || turn.Model != "m" || turn.RequestSize() != len(body) {
			t.Errorf("Turn(%d) = %+v, %v", i, turn, err)
		}
	}
	_, err := s.Turn(10)
	wantIs(t, err, registry.ErrNotFound)
	_, err = s.Turn(-1)
	wantIs(t, err, registry.ErrNotFound)
	if got := s.Summary(); got.WeightVersion.Min != registry.IntVersion(0) || got.WeightVersion.Max != registry.IntVersion(10) ||
		got.ModelTime != 10*time.Second {
		t.Errorf("summary is %+v", got)
	}
}

func TestDeliveryIsUnknownUntilItIsSaid(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	turn := take(t, s, 1, 1)
	if turn.Delivered() != nil {
		t.Error("delivery is known")
	}
	turn.SetDelivered(false)
	if got := turn.Delivered(); got == nil || *got {
		t.Error("delivery did not fail")
	}
	turn.SetDelivered(true)
	if got := turn.Delivered(); got == nil || !*got {
		t.Error("delivery failed")
	}
}

func TestCallIsRecordedOnceHoweverItEnds(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	call := admit(t, s)
	call.Record(registry.Request{Body: []byte("{}")})
	commit(t, call, registry.Response{})
	call.Fail(registry.Failure{Kind: registry.FailureTimeout})
	_, err := call.Commit(registry.Response{})
	wantIs(t, err, registry.ErrSealed)
	call.Close()

	unrecorded := admit(t, s)
	unrecorded.Close()
	aborted := admit(t, s)
	aborted.Record(registry.Request{Body: []byte(`{"first":1}`)})
	aborted.Record(registry.Request{Body: []byte(`{"second":1}`)})
	aborted.Close()
	aborted.Fail(registry.Failure{Kind: registry.FailureTimeout})
	trace := traceOf(t, s)
	if len(trace.Turns) != 1 || trace.FailedTotal != 1 || trace.FailedCalls[0].Error.Kind != registry.FailureAborted ||
		string(trace.FailedCalls[0].Request()) != `{"second":1}` {
		t.Errorf("trace is %+v", trace)
	}
	if got := trace.Summary.LastError; got == nil || got.Kind != registry.FailureAborted || trace.Summary.Inflight != 0 {
		t.Errorf("summary is %+v", trace.Summary)
	}
}

func TestFirstAndLastFailedCallsAreKept(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	var at200, at1000 int64
	for i := range 1000 {
		call := admit(t, s)
		body := fmt.Sprintf(`{"call":"%04d","noise":"%s"}`, i, strings.Repeat(fmt.Sprintf("%06x", i*7919), 300))
		call.Record(registry.Request{Body: []byte(body)})
		kind := registry.FailureConnection
		if i%2 == 0 {
			kind = registry.FailureTimeout
		}
		call.Fail(registry.Failure{Kind: kind, Status: 504, Message: "too late", Received: make([]byte, 1000)})
		call.Close()
		switch i {
		case 199:
			at200 = r.Stats().TraceBytes
		case 999:
			at1000 = r.Stats().TraceBytes
		}
	}
	if at1000 > at200+4096 {
		t.Errorf("failed calls take %d bytes after 200 and %d after 1000", at200, at1000)
	}
	trace := traceOf(t, s)
	if trace.FailedTotal != 1000 || len(trace.FailedCalls) != 200 ||
		trace.Summary.FailedCalls[registry.FailureTimeout] != 500 || trace.Summary.FailedCalls[registry.FailureConnection] != 500 {
		t.Fatalf("%d of %d failed calls are kept, %v", len(trace.FailedCalls), trace.FailedTotal, trace.Summary.FailedCalls)
	}
	for i, failed := range trace.FailedCalls {
		call := i
		if i >= 100 {
			call = 800 + i
		}
		if want := fmt.Sprintf(`{"call":"%04d"`, call); !strings.HasPrefix(string(failed.Request()), want) {
			t.Errorf("failed call %d is %.30s; want %s", i, failed.Request(), want)
		}
	}
}

func TestRequestRecordedAgainReplacesTheOneBefore(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	call := admit(t, s)
	var once int64
	for i := range 100 {
		call.Record(registry.Request{Body: []byte(strings.Repeat(fmt.Sprintf("%06x", i*7919), 300)), Model: fmt.Sprint(i)})
		if i == 0 {
			once = r.Stats().TraceBytes
		}
	}
	if got := r.Stats().TraceBytes; got != once {
		t.Errorf("a request that was recorded a hundred times takes %d bytes; want %d", got, once)
	}
	if turn := commit(t, call, registry.Response{}); turn.Model != "99" {
		t.Errorf("model is %s; want the last one's", turn.Model)
	}
}

func TestWhatARetryIsKnownByIsKeptHoweverItsCallEnds(t *testing.T) {
	s, _ := register(t, newRegistry(t, registry.Options{}), registry.Spec{})
	digest := [32]byte{1, 2, 3}
	open := func() *registry.Call {
		call, err := s.Admit(t.Context(), registry.CallInfo{Attempt: 2, Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(call.Close)
		call.Record(registry.Request{Body: []byte(`{}`), Added: 5})
		return call
	}
	turn := commit(t, open(), registry.Response{Status: 200})
	if turn.Digest != digest || turn.Added != 5 || turn.Attempt != 2 {
		t.Errorf("the turn has the digest %x, %d added, attempt %d", turn.Digest, turn.Added, turn.Attempt)
	}
	open().Fail(registry.Failure{Kind: registry.FailureTimeout})
	if failed := traceOf(t, s).FailedCalls[0]; failed.Digest != digest || failed.Attempt != 2 {
		t.Errorf("the failed call has the digest %x, attempt %d", failed.Digest, failed.Attempt)
	}
}
