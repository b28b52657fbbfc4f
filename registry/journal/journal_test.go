package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

func TestSessionIsTheSameAfterTheProcessDied(t *testing.T) {
	s := start(t, t.TempDir())
	spec := registry.Spec{
		ID: "a", Affinity: "g", SamplingMode: registry.SamplingDefault, Capture: registry.Capture{TokenIDs: true, Logprobs: true},
		User: &registry.Hook{URL: "http://127.0.0.1/user", Timeout: time.Second}, Labels: map[string]string{"env": "gsm8k"}, Metadata: json.RawMessage(`{ "row" : 1 , "s":"<&>"}`),
		Upstream: "u", Model: "m", Sampling: map[string]json.RawMessage{"top_k": json.RawMessage(`[ 1e400 ]`)},
		Limits:         registry.Limits{MaxTurns: new(int64(9)), RequestsPerSecond: new(1e6), MaxDuration: new(time.Hour), MaxInflight: new(3)},
		StopConditions: []registry.StopCondition{{Name: "gave_up", TextRegexp: regexp.MustCompile(`I (can|will) not`)}, {Name: "t", ToolCall: "submit"}},
		Lease:          10 * time.Minute, Digest: [32]byte{1, 2}, OnEndpointLoss: registry.EndpointLossKeep,
		Placement: registry.Placement{Server: "srv-1", URL: "http://a", Generation: 1},
	}
	session, secret := s.register(t, spec)
	var c conversation
	var want [][]byte
	for i := range 20 {
		c.say("user", fmt.Sprint(i, strings.Repeat("u", 200)))
		want = append(want, c.request().Body)
		if i < 5 {
			c.turn(t, session, fmt.Sprint("answer ", i))
		}
	}
	want = want[:5]
	failed := admit(t, session)
	failed.Record(c.request())
	failed.Fail(registry.Failure{Kind: registry.FailureTimeout, Message: "slow", Received: []byte("half"), Duration: time.Second})
	failed.Close()
	if err := session.Move(registry.Placement{Server: "srv-2", URL: "http://b", Generation: 2}); err != nil {
		t.Fatal(err)
	}
	s.flush(t)
	before := session.Summary()
	wantSpec := session.Spec()

	after := start(t, s.die(t))
	again, err := after.Lookup(secret)
	if err != nil {
		t.Fatal(err)
	}
	got := again.Summary()
	for _, at := range []*time.Time{
		&got.CreatedAt, &before.CreatedAt, &got.ExpiresAt, &before.ExpiresAt, &got.FirstCallAt, &before.FirstCallAt, &got.LastCallAt, &before.LastCallAt,
	} {
		*at = at.Truncate(100 * time.Millisecond).UTC()
	}
	if !reflect.DeepEqual(got, before) {
		t.Errorf("the summary was\n%+v\nand is\n%+v", before, got)
	}
	if got := again.Spec(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", wantSpec) && !reflect.DeepEqual(got, wantSpec) {
		t.Errorf("the spec was\n%+v\nand is\n%+v", wantSpec, got)
	}
	wantFilled(t, again.Spec(), "Secret")
	trace := traceOf(t, again)
	if len(trace.Turns) != 5 || len(trace.FailedCalls) != 1 {
		t.Fatalf("%d turns and %d failed calls; want 5 and 1", len(trace.Turns), len(trace.FailedCalls))
	}
	for i, turn := range trace.Turns {
		if !bytes.Equal(turn.Request(), want[i]) || string(turn.Response()) != fmt.Sprint("answer ", i) || turn.Index != i {
			t.Errorf("turn %d is %q, %q", turn.Index, turn.Request(), turn.Response())
		}
		if i == 4 {
			wantFilled(t, turn)
		}
		if d := turn.Delivered(); d == nil || !*d {
			t.Errorf("turn %d is not delivered any more", i)
		}
	}
	f := trace.FailedCalls[0]
	if !bytes.Equal(f.Request(), c.request().Body) || string(f.Received) != "half" || f.Error != (registry.CallError{Kind: "timeout", Message: "slow"}) {
		t.Errorf("the failed call is %+v", f)
	}
	// It goes on where it was: turn 5's conversation continues turn 4, and the limit of nine holds.
	call := admit(t, again)
	request := c.request()
	request.Prefixes = []uint64{9}
	call.Record(request)
	turn, err := call.Commit(registry.Response{Status: 200})
	if err != nil {
		t.Fatal(err)
	}
	call.Close()
	if turn.Index != 5 || turn.Parent == nil || *turn.Parent != 4 {
		t.Errorf("the next turn is %d, of parent %v; want 5 of 4", turn.Index, turn.Parent)
	}
	after.flush(t)
	bytesOf := after.Stats().TraceBytes
	if bytesOf > 30_000 {
		t.Errorf("the trace takes %d bytes: requests are no longer shared", bytesOf)
	}
}

func TestCallInFlightAtAKillIsAFailedOne(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	call := admit(t, session)
	defer call.Close()
	body := []byte(`{"messages":[]}`)
	call.Record(registry.Request{Body: body, Model: "m"})
	s.flush(t)
	after := start(t, s.die(t))
	trace := traceOf(t, after.session(t, "a"))
	if len(trace.Turns) != 0 || len(trace.FailedCalls) != 1 {
		t.Fatalf("%d turns and %d failed calls; want one that failed", len(trace.Turns), len(trace.FailedCalls))
	}
	if f := trace.FailedCalls[0]; f.Error.Kind != registry.FailureAborted || !bytes.Equal(f.Request(), body) || f.RequestID != "req-1" || f.Model != "m" {
		t.Errorf("the failed call is %+v", f)
	}
	after.flush(t)
	again := start(t, after.die(t))
	if trace := traceOf(t, again.session(t, "a")); len(trace.FailedCalls) != 1 || trace.Summary.FailedCalls[registry.FailureAborted] != 1 {
		t.Errorf("after another restart the failed calls are %d, counted %v", len(trace.FailedCalls), trace.Summary.FailedCalls)
	}
}

func TestDeliveryByAReplayAfterARestartIsKept(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	call := admit(t, session)
	call.Record(registry.Request{Body: []byte(`{"messages":[]}`), Model: "m"})
	if _, err := call.Commit(registry.Response{Status: 200, Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	after := start(t, s.die(t))
	turn := traceOf(t, after.session(t, "a")).Turns[0]
	if turn.Delivered() != nil {
		t.Fatalf("delivered: got %t; want that it is not known", *turn.Delivered())
	}
	turn.SetDelivered(true)
	after.flush(t)
	again := start(t, after.die(t))
	if d := traceOf(t, again.session(t, "a")).Turns[0].Delivered(); d == nil || !*d {
		t.Errorf("delivered after another restart: got %v; want true", d)
	}
}

func TestEndedTraceIsReadFromDiskAndItsMemoryIsFree(t *testing.T) {
	s := start(t, t.TempDir())
	session, secret := s.register(t, registry.Spec{ID: "a"})
	var c conversation
	for i := range 10 {
		c.say("user", fmt.Sprint(i, strings.Repeat("u", 1000)))
		c.turn(t, session, fmt.Sprint("answer ", i))
	}
	summary := s.end(t, "a")
	if got := s.Stats().TraceBytes; got != 0 {
		t.Errorf("the trace takes %d bytes of memory", got)
	}
	for _, at := range []*stack{s, start(t, s.die(t))} {
		session := at.session(t, "a")
		trace := traceOf(t, session)
		if len(trace.Turns) != 10 || string(trace.Turns[9].Response()) != "answer 9" || trace.Turns[9].Index != 9 {
			t.Fatalf("the trace has %d turns", len(trace.Turns))
		}
		if turn, err := session.Turn(3); err != nil || turn.Index != 3 || string(turn.Response()) != "answer 3" {
			t.Errorf("turn 3 is %+v, %v", turn, err)
		}
		if _, err := session.Turn(10); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("turn 10: %v", err)
		}
		if got := session.Summary(); got.Turns != 10 || got.EndReason != registry.ReasonDeleted || got.Usage != summary.Usage {
			t.Errorf("the summary is %+v", got)
		}
		_, err := at.Lookup(secret)
		if !errors.Is(err, registry.ErrSessionEnded) {
			t.Errorf("the secret gives %v; want that the session has ended", err)
		}
		if got := at.end(t, "a"); got.Turns != 10 {
			t.Errorf("to end it again gives %+v", got)
		}
		if got := at.Stats().TraceBytes; got != 0 {
			t.Errorf("reading keeps %d bytes of memory", got)
		}
	}
}

func TestFailedCallsOfAnEndedSessionAreThoseOfTheLiveOne(t *testing.T) {
	s := start(t, t.TempDir())
	session, _ := s.register(t, registry.Spec{ID: "a"})
	const failed = 250 // of which the first and the last hundred are kept
	for i := range failed {
		call := admit(t, session)
		call.Fail(registry.Failure{Kind: registry.FailureUpstreamError, Message: fmt.Sprint(i), StartedAt: time.Now()})
		call.Close()
	}
	live := traceOf(t, session)
	if n := len(live.FailedCalls); n != 200 || live.FailedCalls[99].Error.Message != "99" || live.FailedCalls[100].Error.Message != "150" {
		t.Fatalf("%d failed calls are kept", n)
	}
	s.end(t, "a")
	for _, at := range []*stack{s, start(t, s.die(t))} {
		session := at.session(t, "a")
		trace := traceOf(t, session)
		if len(trace.FailedCalls) != len(live.FailedCalls) || trace.FailedTotal != failed {
			t.Fatalf("%d of %d failed calls are kept", len(trace.FailedCalls), trace.FailedTotal)
		}
		for i, f := range trace.FailedCalls {
			if want := live.FailedCalls[i].Error; f.Error != want {
				t.Errorf("failed call %d is %+v, was %+v", i, f.Error, want)
			}
		}
		if _, failures := session.Attempts([32]byte{1}, time.Time{}, time.Now()); len(failures) > 0 {
			t.Errorf("%d failed calls are still in memory", len(failures))
		}
	}
}

// wantFilled checks that no exported field was lost, also of those that are added one day.
func wantFilled(t *testing.T, v any, except ...string) {
	t.Helper()
	s := reflect.Indirect(reflect.ValueOf(v))
	for field, value := range s.Fields() {
		if field.IsExported() && value.IsZero() && !slices.Contains(except, field.Name) {
			t.Errorf("%s.%s is empty: it is not kept, or the test does not fill it", s.Type(), field.Name)
		}
	}
}
