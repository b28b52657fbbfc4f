package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// leaveAfter makes a request whose client leaves when it has read so many events,
// and at the latest when nothing more comes. It returns what was read.
func (r *rollout) leaveAfter(events int, req *http.Request) string {
	r.t.Helper()
	req, leave := abandonable(req)
	defer leave()
	var got strings.Builder
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		res, err := r.client.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		one := make([]byte, 1)
		for count := 0; count < events; {
			if _, err := io.ReadFull(res.Body, one); err != nil {
				return
			}
			got.WriteByte(one[0])
			if strings.HasSuffix(got.String(), "\n\n") {
				count++
			}
		}
		close(done)
	})
	select {
	case <-done:
	case <-time.After(time.Second):
	}
	leave()
	reading.Wait()
	synctest.Wait()
	return got.String()
}

// A retry comes over another connection and may be read first. The first try, whose
// client has gone, makes no turn then, and no later retry repeats it.
func TestThereIsOneTurnWhenARetryIsReadBeforeTheFirstTry(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := answers(2)
		all[0].HoldHeader, all[1].HoldHeader = gate, gate
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		var retried answer
		var calling sync.WaitGroup
		calling.Go(func() { retried = r.retry(1, "counting", "") })
		synctest.Wait()
		r.desert(r.try(0, chatPath, chatBody("counting", "")))
		close(gate)
		calling.Wait()
		if got := retried.number(s.t); got != 0 {
			s.t.Errorf("the retry got answer %d", got)
		}
		synctest.Wait()
		r.wantTurns(1, "client_disconnected")
		if got := r.retry(2, "counting", "").number(s.t); got != 0 {
			s.t.Errorf("the next retry got answer %d", got)
		}
		r.wantTurns(1, "client_disconnected")
		s.wantIdle()
	})
}

// The end of the first connection may be noticed long after the retry: the first try
// makes no turn then either.
func TestThereIsOneTurnWhenAClientsLeavingIsNoticedLate(t *testing.T) {
	for name, test := range map[string]struct{ answeredFirst, keyed bool }{
		"the retry still runs":               {false, false},
		"the retry was answered":             {true, false},
		"with a key, the retry still runs":   {false, true},
		"with a key, the retry was answered": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *stack) {
				first, retry := make(chan struct{}), make(chan struct{})
				all := answers(2)
				all[0].HoldHeader, all[1].HoldHeader = first, retry
				s.model.Sequence("counting", all...)
				r := s.register(registry.Spec{})
				leave := r.leaveOnce(abandonable(r.tryMarked(test.keyed, 0)))
				var retried answer
				var calling sync.WaitGroup
				calling.Go(func() { retried = r.do(r.tryMarked(test.keyed, 1)) })
				pass(time.Second)
				if test.answeredFirst {
					close(retry)
					calling.Wait()
				}
				leave()
				synctest.Wait()
				close(first)
				if !test.answeredFirst {
					close(retry)
					calling.Wait()
				}
				synctest.Wait()
				if got := retried.number(s.t); got != 1 {
					s.t.Errorf("the retry got answer %d", got)
				}
				r.wantTurns(1, "client_disconnected")
				s.wantIdle()
			})
		})
	}
}

// A client may be lost at any event, of the first try and of its retry: in the
// end the harness has the whole answer, and the trace one turn.
func TestThereIsOneTurnWhereverAStreamAndItsRetryAreLeft(t *testing.T) {
	chat := scripted.Fixture("openai/chat-usage.sse")
	events := bytes.Count(chat, []byte("\n\n"))
	for _, delay := range []time.Duration{0, 1500 * time.Millisecond, 2500 * time.Millisecond} {
		for first := range events + 1 {
			for second := range events + 1 {
				if delay > 0 && first > 0 || delay > 2*time.Second && second > 0 {
					continue // nothing has come by then
				}
				bubble(t, func(s *stack) {
					script := scripted.SSE(chat)
					script.Gap = 30 * time.Millisecond
					script.Delay = delay
					s.model.Script("slow", script)
					r := s.register(registry.Spec{})
					body := chatBody("slow", usageAsked)
					r.leaveAfter(first, r.try(0, chatPath, body))
					r.leaveAfter(second, r.try(1, chatPath, body))
					last := r.do(r.try(2, chatPath, body))
					s.wantWhole(r, last, chat)
					calls := len(s.model.Requests())
					if delay > 2*time.Second && calls != 1 {
						s.t.Errorf("%d calls of the upstream for a client that never saw anything, want 1", calls)
					}
					if t.Failed() {
						t.Fatalf("left after %d and %d events, the first after %s; %d calls", first, second, delay, calls)
					}
				})
			}
		}
	}
}

// wantWhole checks that an answer is whole, and that it is the only turn.
func (s *stack) wantWhole(r *rollout, last answer, want []byte) {
	s.t.Helper()
	s.wantIdle()
	if last.err != nil || !bytes.Equal(bytes.ReplaceAll(last.body, []byte(": keepalive\n"), nil), want) {
		s.t.Errorf("the last try got %d %q, %v", last.StatusCode, last.body, last.err)
	}
	trace := r.trace()
	if len(trace.Turns) != 1 || !bytes.Equal(trace.Turns[0].Response(), want) {
		s.t.Errorf("the trace has %d turns, want 1", len(trace.Turns))
		return
	}
	if d := r.delivered(); d != "true" {
		s.t.Errorf("delivered is %s, want true", d)
	}
	if calls := len(s.model.Requests()); calls != 1+len(trace.FailedCalls) {
		s.t.Errorf("the upstream got %d calls, of which %d failed", calls, len(trace.FailedCalls))
	}
}

// The same for JSON, of which a client sees nothing before the end.
func TestThereIsOneTurnWheneverJSONAndItsRetryAreLeft(t *testing.T) {
	chat := scripted.Fixture("openai/chat.json")
	moments := []time.Duration{0, 300 * time.Millisecond, time.Second, 1999 * time.Millisecond, 2000 * time.Millisecond, 2001 * time.Millisecond, 5 * time.Second}
	for _, first := range moments {
		for _, second := range moments {
			bubble(t, func(s *stack) {
				script := scripted.JSON(chat)
				script.Delay = 3 * time.Second
				s.model.Script("slow", script)
				r := s.register(registry.Spec{})
				body := chatBody("slow", "")
				r.leaveAt(first, r.try(0, chatPath, body))
				r.leaveAt(second, r.try(1, chatPath, body))
				s.wantWhole(r, r.do(r.try(2, chatPath, body)), chat)
				s.wantCalls(1)
				if t.Failed() {
					t.Fatalf("left after %s and %s", first, second)
				}
			})
		}
	}
}

// leaveAt makes a request whose client leaves at a moment.
func (r *rollout) leaveAt(after time.Duration, req *http.Request) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	var calling sync.WaitGroup
	calling.Go(func() {
		if res, err := r.client.Do(req.WithContext(ctx)); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
	synctest.Wait()
	time.Sleep(after)
	cancel()
	calling.Wait()
	synctest.Wait()
}

// On sockets, at real moments: whatever is lost, turns and answers fit together.
func TestTurnsAndAnswersFitTogetherWhenClientsLeaveAtRandom(t *testing.T) {
	s := newStack(t, func(set *settings) { set.proxy.RetryGrace = 300 * time.Millisecond })
	script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
	script.Gap, script.Delay = 2*time.Millisecond, 10*time.Millisecond
	s.model.Script("slow", script)
	s.model.Sequence("quick", answers(1)...)
	const sessions, calls = 16, 12
	var running sync.WaitGroup
	for i := range sessions {
		running.Go(func() {
			r := s.register(registry.Spec{})
			for n := range calls {
				model, extra := "slow", usageAsked
				if (i+n)%3 == 0 {
					model, extra = "quick", ""
				}
				body := chatBody(model, extra+fmt.Sprintf(`,"n%d":%d`, n, n))
				if extra == "" {
					body = chatBody(model, fmt.Sprintf(`"n%d":%d`, n, n))
				}
				s.untilAnswered(r, n, body)
			}
			r.settle()
			trace := r.trace()
			if len(trace.Turns) != calls {
				t.Errorf("session %d has %d turns, want %d", i, len(trace.Turns), calls)
			}
			for _, turn := range trace.Turns {
				if d := turn.Delivered(); d == nil || !*d {
					t.Errorf("session %d: turn %d was not delivered", i, turn.Index)
				}
			}
		})
	}
	running.Wait()
}

// untilAnswered tries until an answer is whole; the first tries are left after a
// while, which is longer each time.
func (s *stack) untilAnswered(r *rollout, n int, body string) {
	for count := 0; ; count++ {
		patience := time.Duration(8+(n*7+count*11)%40) * time.Millisecond
		if count == 3 {
			patience = 20 * time.Second
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		res, err := s.client.Do(r.try(count, chatPath, body).WithContext(ctx))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		cancel()
		if err == nil && res.StatusCode == http.StatusOK {
			return
		}
		if count == 3 {
			s.t.Errorf("the last try ended with %v", err)
			return
		}
		<-time.After(100 * time.Millisecond) // SDKs wait longer

	}
}
