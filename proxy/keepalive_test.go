package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/sse"
	"github.com/muxproxy/muxproxy/registry"
)

const keepaliveLine = ": keepalive\n"

// slow makes a stream with a gap before every event but the first.
func (s *stack) slow(model, fixture string, gap time.Duration) scripted.Script {
	script := scripted.SSE(scripted.Fixture(fixture))
	script.Gap, script.FlushHeader = gap, true
	s.model.Script(model, script)
	return script
}

// R13, L18: a silent stream is kept alive before its first event too.
func TestSilentStreamIsKeptAlive(t *testing.T) {
	bubble(t, func(s *stack) {
		hold := make(chan struct{})
		script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
		script.FlushHeader, script.Step = true, hold
		s.model.Script("prefill", script)
		began := time.Now()
		l := s.register(registry.Spec{}).open("prefill", usageAsked)
		for i := range 40 { // two minutes before the first token
			if line := l.line(); line != keepaliveLine {
				s.t.Fatalf("line %d is %q", i, line)
			}
			if at, want := time.Since(began), time.Duration(i+1)*3*time.Second; at != want {
				s.t.Fatalf("keepalive %d came after %s, want %s", i, at, want)
			}
		}
		close(hold)
		if body, err := l.rest(); err != nil || body != string(script.Body) {
			s.t.Errorf("got %v\n%s", err, body)
		}
	})
}

// R19, L19: a keepalive is one comment line without a blank one, between events
// only, and a reader of the stream sees the events that were sent and no other.
func TestKeepalivesStandBetweenEventsAndEndNone(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, fixture := range []string{"openai/tools.sse", "framing/ids.sse", "framing/crlf.sse", "framing/comments.sse", "framing/no-space.sse"} {
			script := s.slow("slow", fixture, 7*time.Second) // two keepalives in every gap
			got := r.chat("slow", usageAsked)
			if got.err != nil || !strings.Contains(string(got.body), keepaliveLine) {
				s.t.Errorf("%s: got %v\n%s\nwithout keepalives", fixture, got.err, got.body)
			}
			if without := strings.ReplaceAll(string(got.body), keepaliveLine, ""); without != string(script.Body) {
				s.t.Errorf("%s: without the keepalives the stream is\n%s\nwant\n%s", fixture, without, script.Body)
			}
			if got, want := fields(got.body), fields(script.Body); got != want {
				s.t.Errorf("%s: a reader sees\n%s\nwant\n%s", fixture, got, want)
			}
		}
		for _, turn := range r.turns() {
			if bytes.Contains(turn.Response(), []byte("keepalive")) {
				s.t.Error("a keepalive was recorded")
			}
		}
	})
}

// fields lists what a reader of a stream gets, event by event, blank lines that
// end nothing included.
func fields(stream []byte) string {
	var b strings.Builder
	var scanner sse.Scanner
	for len(stream) > 0 {
		n := scanner.Next(stream)
		if n == 0 {
			n = len(stream)
		}
		b.WriteString(string(sse.Type(stream[:n])) + "|" + string(sse.Data(stream[:n])) + "\n")
		stream = stream[n:]
	}
	return b.String()
}

// R19: an event that is on its way in pieces is not interrupted.
func TestKeepaliveNeverFallsIntoAnEvent(t *testing.T) {
	bubble(t, func(s *stack) {
		event := `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n"
		script := scripted.SSE([]byte(event + doneEvent))
		script.Cut, script.Gap = scripted.Bytes, 2*time.Second
		s.model.Script("slow-bytes", script)
		got := s.register(registry.Spec{}).chat("slow-bytes", usageAsked)
		if without := strings.ReplaceAll(string(got.body), keepaliveLine, ""); without != string(script.Body) || got.err != nil {
			s.t.Errorf("got %v\n%s", got.err, got.body)
		}
		if !strings.HasPrefix(string(got.body), strings.Repeat(keepaliveLine, len(event)*2/3-1)) {
			s.t.Errorf("the client was not kept alive while the event came in pieces:\n%s", got.body)
		}
	})
}

// R13: a busy stream has none.
func TestBusyStreamHasNoKeepalives(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.slow("brisk", "openai/tools.sse", 2900*time.Millisecond)
		if got := s.register(registry.Spec{}).chat("brisk", usageAsked); !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got\n%s", got.body)
		}
	})
}

// R13: upstream comments count as a sign of life and pass; chunks that are
// taken out do not.
func TestEventsThatAreTakenOutDoNotCountAsTraffic(t *testing.T) {
	bubble(t, func(s *stack) {
		usage := `data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\n"
		text := `data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n"
		script := scripted.SSE([]byte(text + strings.Repeat(usage, 5) + doneEvent))
		script.Gap = 2 * time.Second
		s.model.Script("usage-only", script)
		got := s.register(registry.Spec{}).chat("usage-only", streaming)
		if without := strings.ReplaceAll(string(got.body), keepaliveLine, ""); without != text+doneEvent {
			s.t.Errorf("got\n%s", got.body)
		}
		if n := strings.Count(string(got.body), keepaliveLine); n < 3 {
			s.t.Errorf("12 s of silence had %d keepalives, want at least 3", n)
		}
	})
}

// L18: nothing is sent before the upstream's header, which would be a 200.
func TestNoKeepaliveBeforeTheUpstreamsHeader(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
		script.Delay = 5 * time.Minute
		s.model.Script("late", script)
		began := time.Now()
		got := s.register(registry.Spec{}).chat("late", usageAsked)
		if took := time.Since(began); took < script.Delay || !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("after %s got\n%s", took, got.body)
		}
	})
}

// R13: the interval is a setting, and can be none.
func TestKeepaliveIntervalIsASetting(t *testing.T) {
	for interval, want := range map[time.Duration]int{time.Second: 9, 30 * time.Second: 0, -1: 0} {
		bubble(t, func(s *stack) {
			script := scripted.SSE([]byte("data: 1\n\n" + doneEvent))
			script.Gap = 9500 * time.Millisecond
			s.model.Script("pause", script)
			got := s.register(registry.Spec{}).chat("pause", usageAsked)
			if n := strings.Count(string(got.body), keepaliveLine); n != want || got.err != nil {
				s.t.Errorf("interval %s: got %d keepalives, %v, want %d", interval, n, got.err, want)
			}
		}, func(s *settings) { s.proxy.Keepalive = interval })
	}
}

// L18: a JSON answer has no keepalives: they would commit a status.
func TestJSONAnswerHasNoKeepalives(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.JSON(scripted.Fixture("openai/chat.json"))
		script.Delay = time.Minute
		s.model.Script("late", script)
		if got := s.register(registry.Spec{}).chat("late", ""); !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got %q", got.body)
		}
	})
}
