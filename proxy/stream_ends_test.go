package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

const doneEvent = "data: [DONE]\n\n"

// usageAsked keeps muxproxy from editing a stream.
const usageAsked = streaming + `,"stream_options":{"include_usage":true}`

// wantBroken checks that a stream does not look whole: after what the upstream
// had sent comes one error event, at an event boundary, then a torn connection.
func (a answer) wantBroken(t *testing.T, received []byte, code string) {
	t.Helper()
	rest, ok := bytes.CutPrefix(a.body, received)
	if !ok {
		t.Fatalf("client got\n%s\nwhich does not start with what the upstream sent\n%s", a.body, received)
	}
	if strings.Contains(string(a.body), "[DONE]") {
		t.Errorf("a broken stream has a [DONE]:\n%s", a.body)
	}
	if a.err == nil {
		t.Error("a broken stream ended cleanly")
	}
	if code == "" && len(rest) == 0 {
		return
	}
	event := string(rest)
	if !strings.HasPrefix(event, `data: {"error":{`) || !strings.HasSuffix(event, "}\n\n") || strings.Count(event, "\n\n") != 1 ||
		!strings.Contains(event, `"code":"`+code+`"`) {
		t.Errorf("the stream breaks off with %q, want one error event with code %s", event, code)
	}
}

// events gives the first n events of a stream.
func events(stream []byte, n int) []byte {
	end := 0
	for range n {
		end += bytes.Index(stream[end:], []byte("\n\n")) + 2
	}
	return stream[:end]
}

// R28, R29, L14: an upstream that dies is never turned into a clean end.
func TestStreamCutByTheUpstreamNeverLooksWhole(t *testing.T) {
	bubble(t, func(s *stack) {
		chat := scripted.Fixture("openai/chat-usage.sse")
		for model, received := range map[string][]byte{
			"stream-abort": events(chat, 2), "stream-reset": events(chat, 2), "stream-reset-first": events(chat, 1),
		} {
			r := s.register(registry.Spec{})
			got := r.chat(model, usageAsked)
			got.wantBroken(s.t, received, "upstream_invalid")
			r.wantTurns(0, registry.FailureUpstreamTruncated)
			if failed := r.trace().FailedCalls[0]; !bytes.Equal(failed.Received, received) {
				s.t.Errorf("%s: the failed call keeps\n%s\nwant\n%s", model, failed.Received, received)
			}
			s.wantLogged(logged{Outcome: "upstream_truncated", End: "reset", Status: 200})
		}
		if n := s.outcomes()["upstream_truncated"]; n != 3 {
			s.t.Errorf("%d requests count as upstream_truncated, want 3", n)
		}
	})
}

// R30: what comes after a half-written event does not stick to it.
func TestHalfAnEventIsNotSentOn(t *testing.T) {
	bubble(t, func(s *stack) {
		whole := events(scripted.Fixture("ends/half-event.sse"), 3)
		r := s.register(registry.Spec{})
		r.chat("stream-half-event", usageAsked).wantBroken(s.t, whole, "upstream_invalid")

		clean := scripted.SSE(scripted.Fixture("ends/half-event.sse"))
		s.model.Script("half-event-then-clean", clean)
		r.chat("half-event-then-clean", usageAsked).wantBroken(s.t, whole, "upstream_invalid")
		r.wantTurns(0, registry.FailureUpstreamTruncated, registry.FailureUpstreamTruncated)
	})
}

// L15: a clean close without a terminal event is no end.
func TestCleanCloseWithoutATerminalEventIsATruncation(t *testing.T) {
	bubble(t, func(s *stack) {
		for model, received := range map[string]string{
			"stream-no-terminal": "ends/no-terminal.sse", "stream-comments-only": "framing/comments-only.sse", "stream-empty": "",
		} {
			r := s.register(registry.Spec{})
			var want []byte
			if received != "" {
				want = scripted.Fixture(received)
			}
			r.chat(model, usageAsked).wantBroken(s.t, want, "upstream_invalid") // R24 among them
			r.wantTurns(0, registry.FailureUpstreamTruncated)
			s.wantLogged(logged{Outcome: "upstream_truncated"})
		}
	})
}

// R32, R38: one of [DONE] and finish_reason is enough, and none is added.
func TestDoneOrAFinishReasonAloneEndsAStream(t *testing.T) {
	bubble(t, func(s *stack) {
		for model, end := range map[string]string{"no-done": "eof", "no-finish-reason": "done", "done-first": "done"} {
			r := s.register(registry.Spec{})
			got := r.chat("stream-"+model, usageAsked)
			if want := scripted.Fixture("ends/" + model + ".sse"); got.err != nil || !bytes.Equal(got.body, want) {
				s.t.Errorf("%s: got %v\n%s\nwant\n%s", model, got.err, got.body, want)
			}
			r.wantTurns(1)
			s.wantLogged(logged{Outcome: "ok", End: end})
		}
	})
}

// R28: a finish reason followed by a torn connection is not the end.
func TestTornConnectionAfterTheFinishReasonIsATruncation(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("ends/no-done.sse"))
		script.End = scripted.Reset
		s.model.Script("torn", script)
		r := s.register(registry.Spec{})
		r.chat("torn", usageAsked).wantBroken(s.t, scripted.Fixture("ends/no-done.sse"), "upstream_invalid")
		r.wantTurns(0, registry.FailureUpstreamTruncated)
	})
}

// R38: what happens after [DONE] takes nothing away.
func TestNothingAfterDoneTakesTheTurnAway(t *testing.T) {
	for _, end := range []scripted.End{scripted.Abort, scripted.Reset, scripted.Hang} {
		bubble(t, func(s *stack) {
			script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
			script.End = end
			s.model.Script("after-done", script)
			r := s.register(registry.Spec{})
			began := time.Now()
			got := r.chat("after-done", usageAsked)
			if got.err != nil || !bytes.Equal(got.body, script.Body) {
				s.t.Errorf("end %d: got %v\n%s", end, got.err, got.body)
			}
			if waited := time.Since(began); waited > time.Second {
				s.t.Errorf("end %d: the client waited %s for the end", end, waited)
			}
			r.wantTurns(1)
			s.wantLogged(logged{Outcome: "ok", End: "done"})
			s.wantIdle()
		})
	}
}

// R33, R34, L21: an error inside a 200 stream passes as it is and is a failure.
func TestErrorInsideAStreamPassesUnchangedAndIsAFailedCall(t *testing.T) {
	bubble(t, func(s *stack) {
		for _, model := range []string{"error-first", "error-event-first", "error-after-text", "error-after-text-done"} {
			r := s.register(registry.Spec{})
			got := r.chat("stream-"+model, streaming) // with usage asked for by muxproxy
			if want := scripted.Fixture("ends/" + model + ".sse"); got.StatusCode != 200 || got.err != nil || !bytes.Equal(got.body, want) {
				s.t.Errorf("%s: got %d %v\n%s\nwant\n%s", model, got.StatusCode, got.err, got.body, want)
			}
			r.wantTurns(0, registry.FailureUpstreamError)
			if failed := r.trace().FailedCalls[0]; !bytes.Equal(failed.Received, got.body) || failed.Error.Message == "" || failed.Error.Status != 200 {
				s.t.Errorf("%s: the failed call is %+v and keeps\n%s", model, failed.Error, failed.Received)
			}
			s.wantLogged(logged{Outcome: "upstream_error", End: "error", Status: 200})
		}
	})
}

// R33: an error event does not make a torn stream whole.
func TestErrorInsideAStreamThatIsThenTornIsNotACleanEnd(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("ends/error-after-text.sse"))
		script.End = scripted.Reset
		s.model.Script("error-then-reset", script)
		r := s.register(registry.Spec{})
		got := r.chat("error-then-reset", usageAsked)
		if !bytes.Equal(got.body, script.Body) || got.err == nil {
			s.t.Errorf("got %v\n%s\nwant a torn\n%s", got.err, got.body, script.Body)
		}
		r.wantTurns(0, registry.FailureUpstreamError)
	})
}

// L16, L33: whoever has read the terminal event finds the turn in the trace.
func TestTurnIsInTheTraceBeforeTheTerminalEventIsSeen(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for i := range 50 {
		l := r.open("openai", usageAsked)
		for l.event() != doneEvent {
		}
		if n := len(r.turns()); n != i+1 {
			t.Fatalf("after %d terminal events the trace has %d turns", i+1, n)
		}
		l.close()
	}
}

// R119: no status is committed before the upstream's is known.
func TestStreamingRequestGetsTheStatusThatTheUpstreamCameTo(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.Error(500, scripted.Fixture("errors/500.json"))
		script.Delay = time.Minute // many keepalives long
		s.model.Script("slow-500", script)
		r := s.register(registry.Spec{})
		got := r.chat("slow-500", streaming)
		if got.StatusCode != 500 || !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got %d %q, want the upstream's 500", got.StatusCode, got.body)
		}
		r.chat("401", streaming).wantError(s.t, 502, "upstream_auth")
		if got := r.chat("429", streaming); got.StatusCode != 429 {
			s.t.Errorf("got %d, want 429", got.StatusCode)
		}
		r.wantTurns(0, registry.FailureUpstreamError, registry.FailureAuth, registry.FailureRateLimit)
	})
}

// R119: a refused dial is a 502 for a streaming request too.
func TestStreamingRequestToAClosedPortIs502(t *testing.T) {
	s := newStack(t, at(closedPort(t)))
	r := s.register(registry.Spec{})
	r.chat("openai", streaming).wantError(t, 502, "upstream_unreachable")
	r.wantTurns(0, registry.FailureConnection)
}

// L17: when the turn cannot be recorded its end is withheld.
func TestTerminalEventIsWithheldWhenTheCommitFails(t *testing.T) {
	sealed := 0
	for range 20 {
		bubble(t, func(s *stack) {
			// The upstream's end has come and its connection stays open, so the
			// proxy waits; the session's end does not wait for the proxy.
			script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
			script.End = scripted.Hang
			s.model.Script("openai", script)
			r := s.register(registry.Spec{})
			l := r.open("openai", usageAsked)
			synctest.Wait()
			impatient, cancel := context.WithCancel(s.t.Context())
			cancel()
			if _, err := s.registry.End(impatient, r.session.ID(), registry.EndOptions{}); err != nil {
				s.t.Fatal(err)
			}
			body, err := l.rest()
			if turns := r.turns(); len(turns) > 0 { // the proxy was faster
				if err != nil || body != string(script.Body) {
					s.t.Errorf("a committed stream ended with %v\n%s", err, body)
				}
				return
			}
			sealed++
			received, _ := bytes.CutSuffix(script.Body, []byte(doneEvent))
			answer{l.Response, []byte(body), err}.wantBroken(s.t, received, "session_ended")
			r.wantTurns(0, registry.FailureCancelled)
			s.wantLogged(logged{Outcome: "cancelled", End: "cancelled"})
		})
	}
	if sealed == 0 {
		t.Error("the trace was never sealed before the commit")
	}
}

// R39, L40: a session that ends in the middle breaks its streams off.
func TestEndedSessionBreaksItsStreamOff(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		l := r.open("stream-hang", usageAsked)
		first := l.event()
		if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
			s.t.Fatal(err)
		}
		body, err := l.rest()
		answer{l.Response, []byte(first + body), err}.wantBroken(s.t, []byte(first), "session_ended")
		r.wantTurns(0, registry.FailureCancelled)
		s.wantLogged(logged{Outcome: "cancelled", End: "cancelled"})
		if _, canceled := s.model.Last().Canceled(); !canceled {
			s.t.Error("the upstream did not see the cancellation")
		}
		s.wantIdle()
	})
}

// R39: the limit that cut a stream is named.
func TestStreamCutByItsDurationLimitSaysSo(t *testing.T) {
	bubble(t, func(s *stack) {
		ctx, stop := context.WithCancel(s.t.Context())
		ended := make(chan error)
		go func() { ended <- s.registry.Run(ctx) }()
		r := s.register(registry.Spec{Limits: registry.Limits{MaxDuration: new(time.Minute)}})
		l := r.open("stream-hang", usageAsked)
		body, err := l.rest()
		if err == nil || !strings.Contains(body, `"code":"session_stopped"`) || !strings.Contains(body, `"stop_condition":"max_duration"`) {
			s.t.Errorf("got %v\n%s\nwant a stream cut with session_stopped", err, body)
		}
		s.wantLogged(logged{Outcome: "cancelled", End: "max_duration"})
		r.wantTurns(0, registry.FailureCancelled)
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// R40: reading on after a broken end gives the error that HTTP has for it.
func TestBrokenStreamIsAnUnexpectedEndForItsReader(t *testing.T) {
	s := newStack(t)
	got := s.register(registry.Spec{}).chat("stream-abort", usageAsked)
	if !errors.Is(got.err, io.ErrUnexpectedEOF) {
		t.Errorf("reading ended with %v, want an unexpected EOF", got.err)
	}
}
