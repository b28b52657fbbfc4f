package proxy_test

import (
	"bytes"
	"context"
	"errors"
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

// abandon makes a call and leaves once it stands still.
func (r *rollout) abandon(model, extra string) {
	r.t.Helper()
	req, leave := abandonable(r.request(http.MethodPost, chatPath, chatBody(model, extra)))
	var calling sync.WaitGroup
	calling.Go(func() {
		res, err := r.client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			r.t.Errorf("the call ended with %v before the client left", err)
		}
	})
	synctest.Wait()
	leave()
	calling.Wait()
	synctest.Wait()
}

// wantCanceled checks that the upstream saw the newest call's end within a second of now.
func (s *stack) wantCanceled() {
	s.t.Helper()
	synctest.Wait()
	at, canceled := s.model.Last().Canceled()
	if !canceled || at.After(time.Now().Add(time.Second)) {
		s.t.Errorf("the upstream saw the cancellation: %v, at %s, and it is %s", canceled, at, time.Now())
	}
}

// R40, R41, R42, R47: a client that leaves takes its upstream call with it.
func TestClientThatLeavesCancelsItsCall(t *testing.T) {
	half := scripted.JSON([]byte(`{"choices":[`))
	half.Length, half.End = 1000, scripted.Hang
	for name, call := range map[string]struct{ model, extra string }{
		"before the first byte of JSON":     {"silent", ""},
		"before the first byte of a stream": {"silent", streaming},
		"before the first event":            {"stream-silent", streaming},
		"in the middle of a stream":         {"stream-hang", streaming},
		"in the middle of JSON":             {"half-json", ""},
	} {
		bubble(t, func(s *stack) {
			s.model.Script("half-json", half)
			r := s.register(registry.Spec{})
			r.abandon(call.model, call.extra)
			s.wantCanceled()
			r.wantTurns(0, registry.FailureClientDisconnected)
			s.wantLogged(logged{Outcome: "client_disconnected"})
			s.wantIdle()
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// R39: the log says that it was the client.
func TestStreamLeftByItsClientIsLoggedSo(t *testing.T) {
	bubble(t, func(s *stack) {
		s.register(registry.Spec{}).abandon("stream-hang", streaming)
		s.wantLogged(logged{Outcome: "client_disconnected", End: "client_gone", Status: 200})
		if strings.Contains(s.logs.String(), "panic") { // R48
			s.t.Errorf("a client's leaving is logged as a panic: %s", s.logs)
		}
	})
}

// R47: the connection of a cancelled call is closed, not kept for the next one.
func TestNextCallAfterADisconnectIsAnsweredAsUsual(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for range 3 {
			r.abandon("stream-hang", streaming)
			if got := r.chat("openai", ""); got.StatusCode != 200 {
				s.t.Errorf("got %d %s", got.StatusCode, got.body)
			}
		}
		r.wantTurns(3, registry.FailureClientDisconnected, registry.FailureClientDisconnected, registry.FailureClientDisconnected)
		s.wantIdle()
	})
}

// R44: a client that leaves while it waits for its turn frees its place in the queue.
func TestClientThatLeavesTheQueueIsForgotten(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		gate := s.gated("gated", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")))
		l := r.open("gated", usageAsked)
		r.abandon("openai", "")
		if n := len(s.model.Requests()); n != 1 {
			s.t.Errorf("the upstream got %d requests, want 1", n)
		}
		s.wantLogged(logged{Outcome: "client_disconnected"})
		gate.Open()
		if _, err := l.rest(); err != nil {
			s.t.Error(err)
		}
		if got := r.chat("openai", ""); got.StatusCode != 200 {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		r.wantTurns(2)
		s.wantIdle()
	})
}

// delivered says what the newest turn knows of its delivery.
func (r *rollout) delivered() string {
	turns := r.turns()
	if len(turns) == 0 {
		return "no turn"
	}
	if d := turns[len(turns)-1].Delivered(); d != nil {
		return fmt.Sprint(*d)
	}
	return "unknown"
}

// L42: what was generated to its end is recorded, whoever has left before that.
func TestFinishedGenerationIsCommittedAlthoughTheClientLeft(t *testing.T) {
	for _, after := range []string{"the finish reason", "the usage", "the terminal event"} {
		bubble(t, func(s *stack) {
			chat := scripted.Fixture("openai/chat-usage.sse")
			script := scripted.SSE(chat)
			script.End, script.Gap = scripted.Hang, 20*time.Millisecond
			gate := s.gated("gated", script)
			r := s.register(registry.Spec{})
			l := r.open("gated", usageAsked)
			count := bytes.Count(chat, []byte("\n\n"))
			steps := count - 2
			switch after {
			case "the usage":
				steps = count - 1
			case "the terminal event":
				steps = count
			}
			for range steps {
				gate.Step()
			}
			synctest.Wait()
			l.close()
			synctest.Wait()
			gate.Open() // the rest comes soon
			time.Sleep(time.Second)
			r.wantTurns(1)
			if d := r.delivered(); d != "false" {
				s.t.Errorf("client left after %s: delivered is %s, want false", after, d)
			}
			if turns := r.turns(); len(turns) == 1 && (!bytes.Equal(turns[0].Response(), chat) || turns[0].Usage == nil) {
				s.t.Errorf("client left after %s: the turn holds\n%s", after, turns[0].Response())
			}
			s.wantLogged(logged{Outcome: "client_disconnected", End: "client_gone"})
			s.wantIdle()
		})
	}
}

// L42: but a generation that has not ended is not waited for.
func TestUnfinishedEndIsNotWaitedForOnceTheClientLeft(t *testing.T) {
	bubble(t, func(s *stack) {
		chat := scripted.Fixture("openai/chat-usage.sse")
		script := scripted.SSE(chat)
		script.Limit, script.End = bytes.Count(chat, []byte("\n\n"))-2, scripted.Hang // up to the finish reason
		s.model.Script("endless", script)
		r := s.register(registry.Spec{})
		l := r.open("endless", usageAsked)
		synctest.Wait()
		l.close()
		time.Sleep(time.Second)
		s.wantCanceled()
		s.wantIdle()
		r.wantTurns(0, registry.FailureClientDisconnected)
	})
}

// A client that has its terminal event closes its connection at once, as SDKs
// do; its turn was delivered all the same.
func TestTurnWhoseEndWasReadIsDelivered(t *testing.T) {
	s := newStack(t)
	for range 100 {
		r := s.register(registry.Spec{})
		l := r.open("openai", usageAsked)
		for l.event() != doneEvent {
		}
		l.close()
		r.settle()
		if d := r.delivered(); d != "true" {
			t.Fatalf("delivered is %s, want true", d)
		}
	}
}

// R8: a client that stops reading is cut by the deadline of a write, and its
// call with it.
func TestClientThatStopsReadingIsCut(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.open("stream-60mb", usageAsked)
		first := l.event()
		synctest.Wait() // what the network holds is full
		began := time.Now()
		time.Sleep(61 * time.Second)
		s.wantCanceled()
		if at, _ := s.model.Last().Canceled(); at.Sub(began) > 61*time.Second {
			s.t.Errorf("the upstream was told after %s", at.Sub(began))
		}
		s.wantIdle()
		r.wantTurns(0, registry.FailureClientDisconnected)
		s.wantLogged(logged{Outcome: "client_disconnected", End: "client_gone"})
		if rest, err := l.rest(); err == nil || strings.Contains(rest, "[DONE]") {
			s.t.Errorf("after %d bytes of %q the stream ended with %v", len(rest), first[:20], err)
		}
	}, ticksRarely)
}

// R8: the same for JSON, whose turn was made before the client was known to be gone.
func TestTurnOfAClientThatStopsReadingIsKeptAsNotDelivered(t *testing.T) {
	bubble(t, func(s *stack) {
		big := []byte(`{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"` + strings.Repeat("a", 8<<20) + `"}}]}`)
		s.model.Script("big-json", scripted.JSON(big))
		r := s.register(registry.Spec{})
		l := r.open("big-json", "")
		time.Sleep(61 * time.Second)
		r.wantTurns(1)
		if d := r.delivered(); d != "false" {
			s.t.Errorf("delivered is %s, want false", d)
		}
		s.wantLogged(logged{Outcome: "client_disconnected", End: "client_gone"})
		s.wantIdle()
		if rest, err := l.rest(); err == nil || len(rest) == len(big) {
			s.t.Errorf("the client got all %d bytes", len(rest))
		}
	})
}
