package proxy_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// try makes a request as the official SDKs do, which count their tries.
func (r *rollout) try(count int, path, body string) *http.Request {
	req := r.request(http.MethodPost, path, body)
	req.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(count))
	return req
}

// retry makes a chat call for the count-th time again.
func (r *rollout) retry(count int, model, extra string) answer {
	r.t.Helper()
	return r.do(r.try(count, chatPath, chatBody(model, extra)))
}

// desert makes a call whose client leaves while it stands still.
func (r *rollout) desert(req *http.Request) {
	r.t.Helper()
	req, leave := abandonable(req)
	r.leaveOnce(req, leave)()
	synctest.Wait()
}

// wantCalls checks how often the upstream was called.
func (s *stack) wantCalls(want int) {
	s.t.Helper()
	if n := len(s.model.Requests()); n != want {
		s.t.Errorf("the upstream got %d calls, want %d", n, want)
	}
}

// wantSame checks that an answer is the same as another to its harness.
func (a answer) wantSame(t *testing.T, first answer) {
	t.Helper()
	if a.err != nil || a.StatusCode != first.StatusCode || !bytes.Equal(a.body, first.body) {
		t.Errorf("got %d %q, %v; want %d %q", a.StatusCode, a.body, a.err, first.StatusCode, first.body)
	}
}

// L25: what was answered is answered again, whatever the upstream has to say by then.
func TestRetryOfAnAnsweredCallIsReplayed(t *testing.T) {
	for name, call := range map[string]struct{ path, model, extra string }{
		"JSON":                        {chatPath, "openai", ""},
		"stream":                      {chatPath, "openai", usageAsked},
		"stream without its usage":    {chatPath, "openai", streaming},
		"continuous usage":            {chatPath, "vllm-continuous", streaming},
		"stream with CRLF":            {chatPath, "crlf", streaming},
		"no blank line at the end":    {chatPath, "no-final-blank", streaming},
		"messages":                    {"/v1/messages", "openai", `"max_tokens":9`},
		"stream of messages":          {"/v1/messages", "openai", `"max_tokens":9,` + streaming},
		"upstream repeats itself not": {chatPath, "once", ""},
	} {
		bubble(t, func(s *stack) {
			s.model.Script("vllm-continuous", scripted.SSE(scripted.Fixture("vllm/chat-continuous.sse")))
			s.model.Script("crlf", scripted.SSE(scripted.Fixture("framing/crlf.sse")))
			s.model.Script("no-final-blank", scripted.SSE(scripted.Fixture("framing/no-final-blank.sse")))
			s.model.Sequence("once", scripted.JSON(scripted.Fixture("openai/chat.json")), scripted.Error(500, nil))
			r := s.register(registry.Spec{})
			body := chatBody(call.model, call.extra)
			first := r.do(r.try(0, call.path, body))
			if first.StatusCode != 200 || first.err != nil {
				s.t.Fatalf("%s: got %d %s, %v", name, first.StatusCode, first.body, first.err)
			}
			again := r.do(r.try(1, call.path, body))
			again.wantSame(s.t, first)
			for _, h := range []string{"X-Upstream-Request-Id", "Cache-Control", "X-Accel-Buffering"} {
				if got, want := again.Header.Get(h), first.Header.Get(h); got != want {
					s.t.Errorf("%s is %q, want %q", h, got, want)
				}
			}
			if again.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id") {
				s.t.Error("two requests have one id")
			}
			s.wantLogged(logged{Outcome: "ok", Replay: "replayed", Status: 200})
			s.wantCalls(1)
			r.wantTurns(1)
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// L26: the call goes on for the retry, which gets what its client would have got.
func TestRetryOfARunningCallWhoseClientHasGoneJoinsIt(t *testing.T) {
	for name, call := range map[string]struct{ path, model, extra string }{
		"JSON":               {chatPath, "slow", ""},
		"stream":             {chatPath, "slow", streaming},
		"error":              {chatPath, "slow-429", ""},
		"error in a stream":  {chatPath, "slow-error", streaming},
		"messages":           {"/v1/messages", "slow", `"max_tokens":9`},
		"stream of messages": {"/v1/messages", "slow", `"max_tokens":9,` + streaming},
	} {
		bubble(t, func(s *stack) {
			gate := make(chan struct{})
			held := func(name string, f func(*scripted.Request) scripted.Script) {
				s.model.Func(name, func(r *scripted.Request) scripted.Script {
					script := f(r)
					script.HoldHeader = gate
					return script
				})
			}
			held("slow", recorded)
			held("slow-429", func(*scripted.Request) scripted.Script {
				return scripted.Script{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: scripted.Fixture("errors/429.json")}
			})
			held("slow-error", func(*scripted.Request) scripted.Script {
				return scripted.SSE(scripted.Fixture("ends/error-after-text.sse"))
			})
			r := s.register(registry.Spec{})
			body := chatBody(call.model, call.extra)
			r.desert(r.try(0, call.path, body))
			var joined answer
			var joining sync.WaitGroup
			joining.Go(func() { joined = r.do(r.try(1, call.path, body)) })
			time.Sleep(10 * time.Second) // the grace is long over
			close(gate)
			joining.Wait()
			s.wantCalls(1)
			s.wantIdle()
			lines := map[logged]int{}
			for _, line := range s.logged() {
				lines[logged{Outcome: line.Outcome, Replay: line.Replay, Status: line.Status}]++
			}

			plain := s.register(registry.Spec{})
			want := plain.do(plain.request(http.MethodPost, call.path, body))
			synctest.Wait()
			joined.wantSame(s.t, want)
			for h := range want.Header {
				if got := joined.Header.Get(h); h != "X-Request-Id" && h != "Date" && got != want.Header.Get(h) {
					s.t.Errorf("header %s is %q, want %q", h, got, want.Header.Get(h))
				}
			}
			if turns := plain.turns(); len(turns) != len(r.turns()) {
				s.t.Errorf("%d turns, want %d", len(r.turns()), len(turns))
			}
			outcome := s.logged()[2].Outcome // of the call that was not retried
			if lines[logged{Outcome: outcome, Replay: "joined", Status: want.StatusCode}] != 1 {
				s.t.Errorf("logged are %v, and without a retry %s", lines, outcome)
			}
			if len(r.turns()) == 1 && r.delivered() != "true" {
				s.t.Errorf("delivered is %s, want true", r.delivered())
			}
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// recorded is what a model answered.
func recorded(r *scripted.Request) scripted.Script {
	name := "openai/chat"
	if strings.HasSuffix(r.Path, "/messages") {
		name = "anthropic/message"
	}
	if !bytes.Contains(r.Body, []byte(streaming)) {
		return scripted.JSON(scripted.Fixture(name + ".json"))
	}
	if bytes.Contains(r.Body, []byte("include_usage")) {
		name += "-usage"
	}
	return scripted.SSE(scripted.Fixture(name + ".sse"))
}

// A joined stream is live: what has come is there at once, the rest as it comes.
func TestJoinedStreamHasWhatHasComeAndThenTheLiveTail(t *testing.T) {
	bubble(t, func(s *stack) {
		chat := scripted.Fixture("openai/chat-usage.sse")
		script := scripted.SSE(chat)
		hold := make(chan struct{})
		script.HoldHeader = hold
		gate := s.gated("gated", script)
		r := s.register(registry.Spec{})
		r.desert(r.try(0, chatPath, chatBody("gated", usageAsked)))
		close(hold)
		gate.Step()
		gate.Step()
		synctest.Wait()
		l := r.openRequest(r.try(1, chatPath, chatBody("gated", usageAsked)))
		got := l.event() + l.event()
		began := time.Now()
		got += l.line()
		if waited := time.Since(began); waited > 3*time.Second || !bytes.HasSuffix([]byte(got), []byte(": keepalive\n")) {
			s.t.Errorf("after %s of silence the stream ended with %q", waited, got)
		}
		gate.Open()
		rest, err := l.rest()
		if got = string(bytes.ReplaceAll([]byte(got+rest), []byte(": keepalive\n"), nil)); err != nil || got != string(chat) {
			s.t.Errorf("got %q, %v", got, err)
		}
		s.wantCalls(1)
		r.wantTurns(1)
		s.wantIdle()
	})
}

func TestCallIsCancelledWhenNoRetryComesInTime(t *testing.T) {
	for grace, after := range map[time.Duration]time.Duration{0: 2 * time.Second, 5 * time.Second: 5 * time.Second, -1: 0} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			began := time.Now()
			r.desert(r.try(0, chatPath, chatBody("silent", "")))
			pass(time.Minute)
			if at, canceled := s.model.Last().Canceled(); !canceled || at.Sub(began) != after {
				s.t.Errorf("grace %s: canceled is %v after %s, want after %s", grace, canceled, at.Sub(began), after)
			}
			r.wantTurns(0, registry.FailureClientDisconnected)
			s.wantLogged(logged{Outcome: "client_disconnected", Status: 499})
			s.wantIdle()
		}, func(set *settings) { set.proxy.RetryGrace = grace })
	}
}

// Only an answer that has not begun can be given to another request.
func TestStreamThatHasBegunIsCancelledAtOnceWithItsClient(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.openRequest(r.try(0, chatPath, chatBody("stream-hang", streaming)))
		synctest.Wait()
		l.close()
		s.wantCanceled()
		if at, _ := s.model.Last().Canceled(); time.Since(at) > 0 {
			s.t.Errorf("the upstream was told %s ago", time.Since(at))
		}
		r.wantTurns(0, registry.FailureClientDisconnected)
		if got := r.retry(1, "stream-hang", streaming+`,"x":1`); got.err == nil {
			s.t.Error("another body was taken for the same")
		}
	}, func(set *settings) { set.proxy.IdleTimeout = time.Second })
}

// What has no marker is never waited for: nobody would know its retry.
func TestCallWithoutMarkerIsCancelledAtOnceWithItsClient(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		began := time.Now()
		r.desert(r.request(http.MethodPost, chatPath, chatBody("silent", "")))
		if at, canceled := s.model.Last().Canceled(); !canceled || at.Sub(began) != 0 {
			s.t.Errorf("canceled is %v, after %s", canceled, at.Sub(began))
		}
	})
}
