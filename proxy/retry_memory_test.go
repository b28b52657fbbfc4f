package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/registry"
)

// slowModels are scripts whose answers begin after a second.
func (s *stack) slowModels() {
	stream := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
	stream.Gap = 20 * time.Millisecond
	long := scripted.SSE(bytes.Replace(scripted.Fixture("openai/chat-usage.sse"), []byte("Hello"), bytes.Repeat([]byte("a"), 100<<10), 1))
	reset := stream
	reset.Limit, reset.End = 3, scripted.Reset
	for name, script := range map[string]scripted.Script{
		"json": answers(1)[0], "stream": stream, "long": long, "reset": reset, "500": scripted.Error(500, nil),
		"none": hanging(), "hang": {Header: stream.Header, Body: stream.Body, Cut: stream.Cut, Limit: 3, End: scripted.Hang},
	} {
		script.Delay = time.Second
		s.model.Script("slow-"+name, script)
	}
}

// impatient makes a request whose client leaves after a while, and a little time
// for that to be noticed.
func (r *rollout) impatient(patience time.Duration, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), patience+time.Millisecond)
	defer cancel()
	if res, err := r.client.Do(req.WithContext(ctx)); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	<-time.After(time.Millisecond)
}

// Whatever becomes of calls, clients and retries, all that was kept is let go.
func TestNothingIsKeptOnceAttemptsAreForgotten(t *testing.T) {
	bubble(t, func(s *stack) {
		s.slowModels()
		sessions := []*rollout{s.register(registry.Spec{}), s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(40)}})}
		var running sync.WaitGroup
		n := 0
		for _, model := range []string{"json", "stream", "long", "reset", "500", "none", "hang"} {
			for first := range 6 {
				for second := range 6 {
					body := chatBody("slow-"+model, usageAsked+fmt.Sprintf(`,"n":%d`, n))
					r := sessions[n%2]
					n++
					running.Go(func() {
						r.impatient(time.Duration(first)*400*time.Millisecond, r.try(0, chatPath, body))
						r.impatient(time.Duration(second)*400*time.Millisecond, r.try(1, chatPath, body))
						r.impatient(4*time.Second, r.try(2, chatPath, body))
					})
				}
			}
		}
		running.Wait()
		pass(time.Minute)
		s.wantIdle()
		if kept, most := s.proxy.KeptForRetries(), int64(3*n*proxy.AttemptBytes); kept > most {
			s.t.Errorf("%d bytes are kept of %d requests and their retries, want at most %d", kept, n, most)
		}
		pass(2 * time.Minute)
		sessions[0].retry(0, "openai", "")
		if kept := s.proxy.KeptForRetries(); kept != proxy.AttemptBytes {
			s.t.Errorf("%d bytes are kept of one request, want %d", kept, proxy.AttemptBytes)
		}
		for _, r := range sessions {
			seen := map[string]int{}
			for _, turn := range r.turns() {
				_, id, _ := strings.Cut(string(turn.Request()), `"n":`)
				seen[id]++
			}
			for id, turns := range seen {
				if turns > 1 && id != "" {
					s.t.Errorf("request %s has %d turns", id, turns)
				}
			}
		}
	})
}

// An answer that finds no room while it waits for its retry is given up, and the
// retry runs.
func TestAnswerThatFindsNoRoomIsGivenUpAndItsRetryRuns(t *testing.T) {
	bubble(t, func(s *stack) {
		s.slowModels()
		r := s.register(registry.Spec{})
		body := chatBody("slow-long", usageAsked)
		r.desert(r.try(0, chatPath, body))
		time.Sleep(1500 * time.Millisecond)
		s.wantIdle()
		if got := r.do(r.try(1, chatPath, body)); got.StatusCode != 200 || got.err != nil || len(got.body) < 100<<10 {
			s.t.Errorf("got %d, %d bytes, %v", got.StatusCode, len(got.body), got.err)
		}
		s.wantLogged(logged{Outcome: "ok", Replay: "rerun"})
		r.wantTurns(1, registry.FailureClientDisconnected)
	}, func(set *settings) { set.proxy.ReplayMaxBytes = 64 << 10 })
}

// What a retry has taken over makes room as it is read.
func TestJoinedStreamMayBeLongerThanWhatCanBeKept(t *testing.T) {
	bubble(t, func(s *stack) {
		var long bytes.Buffer
		for i := range 64 {
			fmt.Fprintf(&long, `data: {"choices":[{"index":0,"delta":{"content":"%d %s"},"finish_reason":null}]}`+"\n\n", i, strings.Repeat("a", 4<<10))
		}
		long.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + doneEvent)
		script := scripted.SSE(long.Bytes())
		script.Delay = time.Second
		s.model.Script("long", script)
		r := s.register(registry.Spec{})
		body := chatBody("long", usageAsked)
		r.desert(r.try(0, chatPath, body))
		got := r.do(r.try(1, chatPath, body))
		synctest.Wait()
		if got.err != nil || !bytes.Equal(got.body, long.Bytes()) {
			s.t.Errorf("got %d bytes of %d, %v", len(got.body), long.Len(), got.err)
		}
		r.wantTurns(1)
		s.wantCalls(1)
	}, func(set *settings) { set.proxy.ReplayMaxBytes = 64 << 10 })
}

func TestAttemptsAreForgottenAfterTwoMinutes(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(3)...)
		r := s.register(registry.Spec{})
		r.retry(0, "counting", "")
		pass(2*time.Minute - time.Second)
		if got := r.retry(1, "counting", "").number(s.t); got != 0 {
			s.t.Errorf("just before: answer %d", got)
		}
		pass(2 * time.Minute)
		if got := r.retry(2, "counting", "").number(s.t); got != 1 {
			s.t.Errorf("after: answer %d", got)
		}
		r.wantTurns(2)
	})
}

// Without memory every retry is a new turn, and nothing else changes.
func TestWithoutMemoryRetriesAreNewTurns(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(3)...)
		r := s.register(registry.Spec{})
		for count := range 3 {
			if got := r.retry(count, "counting", "").number(s.t); got != count {
				s.t.Errorf("try %d: answer %d", count, got)
			}
		}
		r.desert(r.try(0, chatPath, chatBody("silent", "")))
		s.wantIdle()
	}, func(set *settings) { set.proxy.ReplayMaxBytes = -1 })
}

// What is kept makes room for what is newer.
func TestOldestAttemptsAreForgottenWhenMemoryIsFull(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(9)...)
		r := s.register(registry.Spec{})
		for i := range 5 {
			r.retry(0, "counting", `"x":`+strconv.Itoa(i))
		}
		if got := r.retry(1, "counting", `"x":4`).number(s.t); got != 4 {
			s.t.Errorf("the newest: answer %d", got)
		}
		if got := r.retry(1, "counting", `"x":0`).number(s.t); got != 5 {
			s.t.Errorf("the oldest: answer %d", got)
		}
	}, func(set *settings) { set.proxy.ReplayMaxBytes = 1 << 10 })
}
