package proxy_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// L27, verifiers#2368: agents repeat themselves, and mean it.
func TestUnmarkedRequestIsATurnOfItsOwnAndSupersedesThoseBefore(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(4)...)
		r := s.register(registry.Spec{})
		for i := range 2 {
			if got := r.retry(0, "counting", ""); got.number(s.t) != i {
				s.t.Errorf("request %d got %s", i, got.body)
			}
		}
		if got := r.retry(1, "counting", ""); got.number(s.t) != 1 {
			s.t.Errorf("the retry got %s, want the newest answer", got.body)
		}
		if got := r.retry(1, "counting", ""); got.number(s.t) != 2 {
			s.t.Errorf("another retry of a first try got %s, want a turn of its own", got.body)
		}
		if got := r.retry(2, "counting", ""); got.number(s.t) != 2 {
			s.t.Errorf("its retry got %s, want the newest answer", got.body)
		}
		r.wantTurns(3)
	})
}

// answers are n different ones.
func answers(n int) []scripted.Script {
	var all []scripted.Script
	for i := range n {
		all = append(all, scripted.JSON(fmt.Appendf(nil, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"%d"}}]}`, i)))
	}
	return all
}

// number is which of answers this is.
func (a answer) number(t *testing.T) int {
	t.Helper()
	_, text, _ := bytes.Cut(a.body, []byte(`"content":"`))
	digits, _, _ := bytes.Cut(text, []byte(`"`))
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		t.Fatalf("got %d %s", a.StatusCode, a.body)
	}
	return n
}

// However a retry and its first try are told apart, n requests are n turns, and
// each retry has one of them to itself.
func TestEachOfParallelRequestsHasATurnAndARetryOfItsOwn(t *testing.T) {
	bubble(t, func(s *stack) {
		const n = 16
		gate := make(chan struct{})
		all := answers(2 * n)
		for i := range all {
			all[i].HoldHeader = gate
		}
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		together := func(count int) map[int]bool {
			numbers := make([]int, n)
			var calling sync.WaitGroup
			for i := range n {
				calling.Go(func() { numbers[i] = r.retry(count, "counting", "").number(s.t) })
			}
			synctest.Wait()
			if count == 0 {
				close(gate)
			}
			calling.Wait()
			seen := map[int]bool{}
			for _, number := range numbers {
				seen[number] = true
			}
			return seen
		}
		for count := range 3 {
			if seen := together(count); len(seen) != n {
				s.t.Errorf("try %d: %d requests got %d different answers", count, n, len(seen))
			}
		}
		s.wantCalls(n)
		r.wantTurns(n)
		if got := r.retry(0, "counting", "").number(s.t); got != n {
			s.t.Errorf("a new request got answer %d", got)
		}
	})
}

// Two retries cannot both have what one client left behind.
func TestOneOfTwoRetriesJoinsAndTheOtherIsATurnOfItsOwn(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := answers(2)
		all[0].HoldHeader = gate
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		r.desert(r.try(0, chatPath, chatBody("counting", "")))
		numbers := make([]int, 2)
		var calling sync.WaitGroup
		for i := range numbers {
			calling.Go(func() { numbers[i] = r.retry(1, "counting", "").number(s.t) })
		}
		synctest.Wait()
		close(gate)
		calling.Wait()
		if numbers[0]+numbers[1] != 1 {
			s.t.Errorf("the retries got the answers %v, want 0 and 1", numbers)
		}
		s.wantCalls(2)
		r.wantTurns(2)
		s.wantIdle()
	})
}

// The same: while a client is there its answer is its own.
func TestRunningCallWhoseClientIsThereIsNotJoined(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := answers(2)
		all[0].HoldHeader = gate
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		var first answer
		var calling sync.WaitGroup
		calling.Go(func() { first = r.retry(0, "counting", "") })
		synctest.Wait()
		if got := r.retry(1, "counting", "").number(s.t); got != 1 {
			s.t.Errorf("the retry got answer %d", got)
		}
		s.wantLogged(logged{Replay: "new"})
		close(gate)
		calling.Wait()
		if got := first.number(s.t); got != 0 {
			s.t.Errorf("the first try got answer %d", got)
		}
		r.wantTurns(2)
	})
}

// An attempt that made no turn comes first: the others may belong to other clients.
func TestRetryOfAFailedCallIsRunEvenIfOthersCanBeReplayed(t *testing.T) {
	bubble(t, func(s *stack) {
		gate := make(chan struct{})
		all := append([]scripted.Script{scripted.Error(503, nil)}, answers(3)...)
		all[0].HoldHeader, all[1].HoldHeader = gate, gate
		s.model.Sequence("counting", all...)
		r := s.register(registry.Spec{})
		var calling sync.WaitGroup
		for range 2 {
			calling.Go(func() { r.retry(0, "counting", "") })
		}
		synctest.Wait()
		close(gate)
		calling.Wait()
		if got := r.retry(1, "counting", "").number(s.t); got != 1 {
			s.t.Errorf("the retry got answer %d, want one of its own", got)
		}
		s.wantLogged(logged{Replay: "rerun"})
		if got := r.retry(1, "counting", "").number(s.t); got != 0 {
			s.t.Errorf("the next retry got answer %d, want the one that was there", got)
		}
		r.wantTurns(2, registry.FailureUpstreamError)
	})
}

func TestIdempotencyKeyMarksARetry(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(5)...)
		r := s.register(registry.Spec{})
		keyed := func(key, extra string) int {
			req := r.request(http.MethodPost, chatPath, chatBody("counting", extra))
			req.Header.Set("Idempotency-Key", key)
			return r.do(req).number(s.t)
		}
		for i, try := range []struct {
			key, extra string
			want       int
		}{{"a", "", 0}, {"a", "", 0}, {"b", "", 1}, {"a", "", 0}, {"b", `"x":1`, 2}, {"b", "", 1}} {
			if got := keyed(try.key, try.extra); got != try.want {
				s.t.Errorf("request %d, key %s: answer %d, want %d", i, try.key, got, try.want)
			}
		}
		if got := r.chat("counting", "").number(s.t); got != 3 {
			s.t.Errorf("without a key: answer %d", got)
		}
		r.wantTurns(4)
	})
}

// What an attempt is, is all that its upstream would see of it.
func TestOnlyTheSameRequestIsARetry(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Sequence("counting", answers(9)...)
		r, other := s.register(registry.Spec{}), s.register(registry.Spec{})
		path, body := chatPath, chatBody("counting", "")
		if got := r.do(r.try(0, path, body)).number(s.t); got != 0 {
			s.t.Fatalf("answer %d", got)
		}
		for i, different := range []*http.Request{
			other.try(1, path, body),
			r.try(1, path+"?a=1", body),
			r.try(1, path, body+" "),
			r.try(1, "/v1/messages", body),
		} {
			if got := r.do(different); got.StatusCode == 200 && got.number(s.t) == 0 {
				s.t.Errorf("request %d got another's answer", i)
			}
		}
		for i, same := range []*http.Request{
			r.try(1, path, body),
			r.try(2, "//chat/completions/", body),
			r.try(3, path+"?key="+r.secret, body),
		} {
			if got := r.do(same).number(s.t); got != 0 {
				s.t.Errorf("retry %d got answer %d", i, got)
			}
		}
	})
}
