package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// gated makes a script whose pieces wait for the gate.
func (s *stack) gated(model string, script scripted.Script) scripted.Gate {
	gate := scripted.NewGate()
	script.Step, script.FlushHeader = gate, true
	s.model.Script(model, script)
	return gate
}

// R1, R7, R11: every event arrives before the next one is sent.
func TestEventsArriveOneByOne(t *testing.T) {
	s := newStack(t)
	stream := scripted.Fixture("openai/chat-usage.sse")
	for _, contentType := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream;charset=UTF-8"} {
		script := scripted.SSE(stream)
		script.Header = http.Header{"Content-Type": {contentType}}
		gate := s.gated("gated", script)
		l := s.register(registry.Spec{}).open("gated", usageAsked)
		for rest := stream; len(rest) > 0; {
			want := string(events(rest, 1))
			rest = rest[len(want):]
			gate.Step()
			if want == doneEvent {
				gate.Open() // it is held until the body ends
			}
			if got := l.event(); got != want {
				t.Fatalf("%s: got event %q, want %q", contentType, got, want)
			}
		}
		if rest, err := l.rest(); rest != "" || err != nil {
			t.Errorf("%s: the stream ends with %q, %v", contentType, rest, err)
		}
	}
}

// R2: the header arrives before the first byte of the body.
func TestHeaderArrivesBeforeTheFirstByte(t *testing.T) {
	s := newStack(t)
	script := scripted.SSE(scripted.Fixture("openai/chat.sse"))
	script.Header.Set("X-Ratelimit-Remaining-Requests", "7")
	gate := s.gated("gated", script)
	l := s.register(registry.Spec{}).open("gated", usageAsked) // returns with the header
	if l.StatusCode != 200 || l.Header.Get("X-Ratelimit-Remaining-Requests") != "7" {
		t.Errorf("got status %d, header %v", l.StatusCode, l.Header)
	}
	gate.Open()
	if body, err := l.rest(); err != nil || body != string(script.Body) {
		t.Errorf("got %v\n%s", err, body)
	}
}

// R4, R11: small events keep their distance, nothing waits for more to come.
func TestSmallEventsKeepTheirPace(t *testing.T) {
	bubble(t, func(s *stack) {
		tiny := strings.Repeat("data:1\n\n", 20)
		script := scripted.SSE([]byte(tiny + "data: [DONE]\n\n"))
		script.Gap = 100 * time.Millisecond
		s.model.Script("tiny", script)
		l := s.register(registry.Spec{}).open("tiny", usageAsked)
		last := time.Now()
		for i := range 20 {
			if got := l.event(); got != "data:1\n\n" {
				s.t.Fatalf("event %d is %q", i, got)
			}
			if gap := time.Since(last); i > 0 && gap != script.Gap {
				s.t.Errorf("event %d came %s after the one before, want %s", i, gap, script.Gap)
			}
			last = time.Now()
		}
	})
}

// R5: nothing in front of muxproxy is invited to hold a stream.
func TestStreamForbidsBufferingOnItsWay(t *testing.T) {
	s := newStack(t)
	got := s.register(registry.Spec{}).chat("openai", streaming)
	for name, want := range map[string]string{
		"X-Accel-Buffering": "no", "Cache-Control": "no-cache, no-transform",
		"Content-Type": "text/event-stream; charset=utf-8", "X-Muxproxy-Server": "nonce-1",
	} {
		if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("%s is %q, want %q", name, values, want)
		}
	}
}

// R6: a client that would take gzip gets a stream as it is.
func TestStreamIsNeverCompressed(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	req := r.request(http.MethodPost, chatPath, chatBody("openai", usageAsked))
	req.Header.Set("Accept-Encoding", "gzip, br, zstd")
	got := s.do(req)
	if got.Header.Get("Content-Encoding") != "" || !bytes.Equal(got.body, scripted.Fixture("openai/chat-usage.sse")) {
		t.Errorf("got %q coded %q", got.body, got.Header.Get("Content-Encoding"))
	}
	if up := s.model.Last().Header.Values("Accept-Encoding"); len(up) != 1 || up[0] != "identity" {
		t.Errorf("the upstream was offered %q, want identity", up)
	}
}

// R14: a rune cut at any byte comes out whole, an event as soon as it is.
func TestEventIsSentWhenItsLastByteHasCome(t *testing.T) {
	bubble(t, func(s *stack) {
		event := `data: {"choices":[{"index":0,"delta":{"content":"北😀"}}]}` + "\n\n"
		script := scripted.SSE([]byte(event + doneEvent))
		script.Cut, script.Gap = scripted.Bytes, 10*time.Millisecond
		s.model.Script("slow-bytes", script)
		began := time.Now()
		l := s.register(registry.Spec{}).open("slow-bytes", usageAsked)
		if got := l.event(); got != event {
			s.t.Errorf("got %q, want %q", got, event)
		}
		if took := time.Since(began); took != time.Duration(len(event)-1)*script.Gap {
			s.t.Errorf("the event took %s, its bytes %s", took, time.Duration(len(event)-1)*script.Gap)
		}
		if rest, err := l.rest(); rest != doneEvent || err != nil {
			s.t.Errorf("the rest is %q, %v", rest, err)
		}
	})
}

// R15, R17: framing of any kind is let out event by event too.
func TestEventsOfAnyFramingArriveOneByOne(t *testing.T) {
	for _, framing := range []string{"crlf", "no-space", "ids", "comments", "event-lines", "bom"} {
		bubble(t, func(s *stack) {
			script := scripted.SSE(scripted.Fixture("framing/" + framing + ".sse"))
			gate := s.gated("gated", script)
			l := s.register(registry.Spec{}).open("gated", usageAsked)
			gate.Step()
			first := l.event()
			if !bytes.HasPrefix(script.Body, []byte(first)) {
				s.t.Errorf("%s: the first event is %q", framing, first)
			}
			gate.Open()
			if rest, err := l.rest(); err != nil || first+rest != string(script.Body) {
				s.t.Errorf("%s: got %v\n%s", framing, err, first+rest)
			}
		})
	}
}

// R22: one line of 8 MiB passes whole and is recorded.
func TestEventOfEightMebibytesPassesWhole(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	got := r.chat("stream-8mb-line", usageAsked)
	if got.err != nil || len(got.body) < 8<<20 || !bytes.HasSuffix(got.body, []byte(doneEvent)) {
		t.Errorf("got %d bytes, %v", len(got.body), got.err)
	}
	r.wantTurns(1)
	if turn := r.turns()[0]; !bytes.Equal(turn.Response(), got.body) {
		t.Errorf("the turn holds %d bytes, the client got %d", len(turn.Response()), len(got.body))
	}
}

// R61: what is kept of a stream does not cap it.
func TestStreamOfSixtyMebibytesPassesWhole(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	l := r.open("stream-60mb", usageAsked)
	n, err := io.Copy(io.Discard, l.reader)
	if n < 60<<20 || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	r.wantTurns(1)
}

// R61: an answer over the limit is cut and not taken for a turn.
func TestAnswerOverTheBodyLimitIsCut(t *testing.T) {
	s := newStack(t, func(s *settings) { s.proxy.MaxBodyBytes = 1 << 20 })
	r := s.register(registry.Spec{})
	got := r.chat("stream-8mb-line", usageAsked)
	got.wantBroken(t, nil, "upstream_invalid")

	big := []byte(`{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"` + strings.Repeat("a", 2<<20) + `"}}]}`)
	s.model.Script("big-json", scripted.JSON(big))
	r.chat("big-json", "").wantError(t, 502, "upstream_invalid")

	chunked := scripted.JSON(big)
	chunked.Length = -1
	s.model.Script("big-chunked", chunked)
	r.chat("big-chunked", "").wantError(t, 502, "upstream_invalid")
	r.wantTurns(0, registry.FailureUpstreamError, registry.FailureUpstreamError, registry.FailureUpstreamError)
}

// An announced length is not memory until the bytes are there.
func TestAnnouncedLengthIsNotTrusted(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.JSON(scripted.Fixture("openai/chat.json"))
		script.Length, script.End = 1<<60, scripted.Abort
		s.model.Script("liar", script)
		r := s.register(registry.Spec{})
		r.chat("liar", "").wantError(s.t, 502, "upstream_invalid")
		r.wantTurns(0, registry.FailureUpstreamError)
	}, func(s *settings) { s.proxy.MaxBodyBytes = 1 << 20 })
}

// A stream that was asked for may be answered with JSON, and the other way round.
func TestAnswerIsRelayedAsItsTypeSays(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		s.model.Script("json", scripted.JSON(scripted.Fixture("openai/chat.json")))
		if got := r.chat("json", streaming); !bytes.Equal(got.body, scripted.Fixture("openai/chat.json")) {
			s.t.Errorf("got %s", got.body)
		}
		s.model.Script("sse", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")))
		if got := r.chat("sse", ""); !bytes.Equal(got.body, scripted.Fixture("openai/chat-usage.sse")) {
			s.t.Errorf("got %s", got.body)
		}
		synctest.Wait()
		turns := r.turns()
		if len(turns) != 2 || turns[0].Stream || !turns[1].Stream || turns[0].Usage == nil || turns[1].Usage == nil {
			s.t.Errorf("turns are not recorded as they came: %+v", turns)
		}
	})
}
