package proxy_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// tryMarked makes a chat request that its client tries for the count-th time again,
// marked by an idempotency key alone or by the count.
func (r *rollout) tryMarked(keyed bool, count int) *http.Request {
	body := chatBody("counting", "")
	if !keyed {
		return r.try(count, chatPath, body)
	}
	req := r.request(http.MethodPost, chatPath, body)
	req.Header.Set("Idempotency-Key", "k")
	return req
}

// inTwo makes of a request one whose header comes before its body. The body is sent
// by finish.
func inTwo(req *http.Request) (halves *http.Request, finish func()) {
	whole := req.Body
	body, upload := io.Pipe()
	req.Body, req.GetBody = body, nil
	return req, func() {
		_, _ = io.Copy(upload, whole)
		upload.Close()
		synctest.Wait()
	}
}

// asked begins a request and returns what waits for its answer.
func (r *rollout) asked(req *http.Request) (answered func() answer) {
	var got answer
	var calling sync.WaitGroup
	calling.Go(func() { got = r.do(req) })
	synctest.Wait()
	return func() answer {
		calling.Wait()
		synctest.Wait()
		return got
	}
}

// oneByOne makes the model give n answers, each when it is let.
func (s *stack) oneByOne(n int) (let []chan struct{}) {
	all := answers(n)
	for i := range all {
		let = append(let, make(chan struct{}))
		all[i].HoldHeader = let[i]
	}
	s.model.Sequence("counting", all...)
	return let
}

// A first try may be answered before its client is seen to leave. It makes no turn if
// a retry of it runs or ran, whichever was read first.
func TestAFirstTryThatWasAnsweredIsNoTurnIfItsClientLeftForARetry(t *testing.T) {
	for name, test := range map[string]struct{ retryFirst, retryAnswered, keyed bool }{
		"the retry still runs":                  {false, false, false},
		"the retry was answered":                {false, true, false},
		"the retry was read first":              {true, false, false},
		"with a key, the retry still runs":      {false, false, true},
		"with a key, the retry was answered":    {false, true, true},
		"with a key, the retry was read first":  {true, false, true},
		"it was read first and answered before": {true, true, false},
	} {
		bubble(t, func(s *stack) {
			let := s.oneByOne(2)
			r := s.register(registry.Spec{})
			var leave func()
			var retried func() answer
			first, second := let[0], let[1]
			if test.retryFirst {
				first, second = second, first
				retried = r.asked(r.tryMarked(test.keyed, 1))
				pass(time.Millisecond)
				leave = r.leaveOnce(abandonable(r.tryMarked(test.keyed, 0)))
			} else {
				leave = r.leaveOnce(abandonable(r.tryMarked(test.keyed, 0)))
				retried = r.asked(r.tryMarked(test.keyed, 1))
			}
			pass(time.Second)
			s.wantCalls(2)
			if test.retryAnswered {
				close(second)
				got := retried()
				r.do(r.tryMarked(test.keyed, 2)).wantSame(s.t, got)
			}
			close(first)
			pass(20 * time.Millisecond)
			if n := len(r.turns()); n > 1 || n == 1 && !test.retryAnswered {
				s.t.Errorf("there are %d turns before the first client is seen to leave", n)
			}
			leave()
			synctest.Wait()
			if !test.retryAnswered {
				close(second)
			}
			if got := retried(); got.StatusCode != 200 {
				s.t.Errorf("the retry got %d %s", got.StatusCode, got.body)
			}
			pass(time.Second)
			r.wantTurns(1, registry.FailureClientDisconnected)
			s.wantIdle()
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// The same of a stream, whose client has had all but its end.
func TestAStreamedFirstTryIsNoTurnIfItsClientLeftForARetry(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := s.gated("gated", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")))
		r := s.register(registry.Spec{})
		body := chatBody("gated", usageAsked)
		first := r.openRequest(r.try(0, chatPath, body))
		retried := r.asked(r.try(1, chatPath, body))
		pass(time.Second)
		gate.Open()
		synctest.Wait()
		first.close()
		if got := retried(); got.StatusCode != 200 || got.err != nil {
			s.t.Errorf("the retry got %d, %v", got.StatusCode, got.err)
		}
		r.wantTurns(1, registry.FailureClientDisconnected)
		s.wantIdle()
	})
}

// The header of the first try was there before its retry was answered, its body
// only after that. What it would repeat stays what the next retry gets.
func TestAFirstTryWhoseBodyIsLateIsNoTurnIfItsClientLeftForARetry(t *testing.T) {
	for name, tries := range map[string]int{"the retry was answered once": 1, "and again": 2} {
		bubble(t, func(s *stack) {
			let := s.oneByOne(2)
			close(let[0])
			r := s.register(registry.Spec{})
			first, finish := inTwo(r.try(0, chatPath, chatBody("counting", "")))
			leave := r.leaveOnce(abandonable(first))
			pass(time.Millisecond)
			for n := range tries {
				if got := r.retry(n+1, "counting", "").number(s.t); got != 0 {
					s.t.Errorf("retry %d got answer %d", n+1, got)
				}
			}
			pass(time.Second)
			finish()
			s.wantCalls(2)
			leave()
			synctest.Wait()
			close(let[1])
			pass(5 * time.Second)
			r.wantTurns(1, registry.FailureClientDisconnected)
			if got := r.retry(tries+1, "counting", "").number(s.t); got != 0 {
				s.t.Errorf("the next retry got answer %d", got)
			}
			r.wantTurns(1, registry.FailureClientDisconnected)
			s.wantIdle()
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// Whoever has the answer to a retry may ask the same once more: that is a turn of its
// own, for which its own retry finds the call.
func TestARequestAfterARetryIsATurnOfItsOwnThoughItsClientLeaves(t *testing.T) {
	for name, tries := range map[string]int{"the retry was answered once": 1, "and again": 2} {
		bubble(t, func(s *stack) {
			let := s.oneByOne(2)
			close(let[0])
			r := s.register(registry.Spec{})
			for n := range tries {
				r.retry(n+1, "counting", "")
			}
			pass(time.Millisecond)
			r.desert(r.try(0, chatPath, chatBody("counting", "")))
			retried := r.asked(r.try(1, chatPath, chatBody("counting", "")))
			close(let[1])
			if got := retried().number(s.t); got != 1 {
				s.t.Errorf("the retry of the second request got answer %d", got)
			}
			s.wantCalls(2)
			r.wantTurns(2)
			s.wantIdle()
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// Only a call that may have been retried elsewhere waits for its client's leaving, and
// not for long: the client may be there.
func TestTheAnswerOfACallThatMayHaveBeenRetriedIsLittleLater(t *testing.T) {
	bubble(t, func(s *stack) {
		let := s.oneByOne(3)
		close(let[2])
		r := s.register(registry.Spec{})
		first := r.asked(r.try(0, chatPath, chatBody("counting", "")))
		other := r.asked(r.try(0, chatPath, chatBody("counting", `"x":1`)))
		if got := r.retry(1, "counting", "").number(s.t); got != 2 {
			s.t.Errorf("the retry got answer %d", got)
		}
		pass(time.Second)
		for i, of := range []struct {
			answered func() answer
			want     time.Duration
		}{{first, 50 * time.Millisecond}, {other, 0}} {
			began := time.Now()
			close(let[i])
			if got := of.answered().number(s.t); got != i || time.Since(began) != of.want {
				s.t.Errorf("call %d got answer %d after %s, want its own after %s", i, got, time.Since(began), of.want)
			}
		}
		r.wantTurns(3)
	})
}
