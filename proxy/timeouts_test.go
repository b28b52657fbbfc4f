package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// wantTimeout checks a 504 that names the budget.
func (a answer) wantTimeout(t *testing.T, budget string) {
	t.Helper()
	a.wantError(t, http.StatusGatewayTimeout, "upstream_timeout")
	if !strings.Contains(string(a.body), budget) {
		t.Errorf("the message of %s does not name the budget %q", a.body, budget)
	}
}

// R97, R102: the first byte has its budget, which the message names.
func TestFirstByteBudgetIsA504(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			began := time.Now()
			got := r.chat("silent", extra)
			got.wantTimeout(s.t, "first byte budget of 15m0s")
			if took := time.Since(began); took != 15*time.Minute {
				s.t.Errorf("the budget took %s", took)
			}
			r.wantTurns(0, registry.FailureTimeout)
			s.wantLogged(logged{Outcome: "upstream_timeout", Status: 504})
			s.wantIdle()
			if _, canceled := s.model.Last().Canceled(); !canceled {
				s.t.Error("the upstream was not told")
			}
		})
	}
}

// R97, R102: a JSON body that stops coming is a 504 as well.
func TestIdleBudgetOfAJSONAnswerIsA504(t *testing.T) {
	bubble(t, func(s *stack) {
		chat := scripted.Fixture("openai/chat.json")
		script := scripted.JSON(chat[:len(chat)/2])
		script.Length, script.End = int64(len(chat)), scripted.Hang
		s.model.Script("half", script)
		r := s.register(registry.Spec{})
		began := time.Now()
		r.chat("half", "").wantTimeout(s.t, "idle budget of 5m0s")
		if took := time.Since(began); took != 5*time.Minute {
			s.t.Errorf("the budget took %s", took)
		}
		r.wantTurns(0, registry.FailureTimeout)
		if failed := r.trace().FailedCalls[0]; !bytes.Equal(failed.Received, script.Body) {
			s.t.Errorf("the failed call keeps %q, want what had come", failed.Received)
		}
		s.wantIdle()
	})
}

// R97, R102: after the header a timeout breaks the stream, and says which it was.
func TestSilenceBreaksAStreamOffAndNamesTheBudget(t *testing.T) {
	for _, test := range []struct {
		model, message, end string
		after               time.Duration
		change              func(*settings)
	}{
		{"stream-hang", "idle budget of 5m0s", "idle_timeout", 5 * time.Minute, nil},
		{"stream-hang", "idle budget of 5m0s", "idle_timeout", 5 * time.Minute, func(s *settings) { s.proxy.Keepalive = -1 }},
		{"stream-silent", "first byte budget of 15m0s", "first_byte_timeout", 15 * time.Minute, nil},
		{"stream-silent", "first byte budget of 15m0s", "first_byte_timeout", 15 * time.Minute, func(s *settings) { s.proxy.Keepalive = -1 }},
	} {
		change := []func(*settings){}
		if test.change != nil {
			change = append(change, test.change)
		}
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			began := time.Now()
			got := r.chat(test.model, usageAsked)
			if took := time.Since(began); took != test.after {
				s.t.Errorf("%s: the budget took %s", test.model, took)
			}
			body := strings.ReplaceAll(string(got.body), keepaliveLine, "")
			if got.err == nil || !strings.Contains(body, `"code":"upstream_timeout"`) || !strings.Contains(body, test.message) || strings.Contains(body, "[DONE]") {
				s.t.Errorf("%s: got %v\n%s", test.model, got.err, body)
			}
			r.wantTurns(0, registry.FailureTimeout)
			s.wantLogged(logged{Outcome: "upstream_timeout", End: test.end, Status: 200})
			s.wantIdle()
		}, change...)
	}
}

// R98, R101: an engine that sends its header when it has queued a call, and its
// first event ten minutes later, is waited for.
func TestFirstEventMayTakeAsLongAsTheFirstByte(t *testing.T) {
	bubble(t, func(s *stack) {
		hold := make(chan struct{})
		script := scripted.SSE(scripted.Fixture("vllm/chat-usage.sse"))
		script.FlushHeader, script.Step = true, hold
		s.model.Script("queued", script)
		r := s.register(registry.Spec{})
		l := r.open("queued", usageAsked)
		time.AfterFunc(10*time.Minute, func() { close(hold) })
		body, err := l.rest()
		if body = strings.ReplaceAll(body, keepaliveLine, ""); err != nil || body != string(script.Body) {
			s.t.Errorf("got %v\n%s", err, body)
		}
		r.wantTurns(1)
	})
}

// R97: every event starts the idle budget anew; keepalives do not.
func TestIdleBudgetCountsFromTheLastEvent(t *testing.T) {
	bubble(t, func(s *stack) {
		script := s.slow("slow", "openai/chat-usage.sse", 4*time.Minute)
		got := s.register(registry.Spec{}).chat("slow", usageAsked)
		if body := strings.ReplaceAll(string(got.body), keepaliveLine, ""); got.err != nil || body != string(script.Body) {
			s.t.Errorf("got %v\n%s", got.err, body)
		}
	})
}

// R96, R101: a live stream has no total timeout.
func TestLiveStreamIsNeverCutForItsLength(t *testing.T) {
	bubble(t, func(s *stack) {
		event := `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n"
		script := scripted.SSE([]byte(strings.Repeat(event, 2500) + doneEvent)) // twice the longest budget and more
		script.Gap = time.Second
		s.model.Script("long", script)
		began := time.Now()
		got := s.register(registry.Spec{}).chat("long", usageAsked)
		if got.err != nil || !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got %d bytes, %v", len(got.body), got.err)
		}
		if took := time.Since(began); took < 40*time.Minute {
			s.t.Errorf("the stream took %s", took)
		}
	})
}

// R98, R101: 310 s without a byte pass, streamed or not.
func TestThreeHundredAndTenSecondsOfPrefillPass(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		script := scripted.JSON(scripted.Fixture("openai/chat.json"))
		script.Delay = 310 * time.Second
		s.model.Script("slow-json", script)
		if got := r.chat("slow-json", ""); got.StatusCode != 200 || !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		stream := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
		stream.Delay = 310 * time.Second
		s.model.Script("slow-stream", stream)
		if got := r.chat("slow-stream", usageAsked); got.StatusCode != 200 || !bytes.Equal(got.body, stream.Body) {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		r.wantTurns(2)
	})
}

// R101: a slow JSON body passes as long as it moves.
func TestSlowJSONBodyPassesAsLongAsItMoves(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.JSON(scripted.Fixture("sglang/chat.json"))
		script.Cut, script.Gap = scripted.Bytes, 4*time.Second // over half an hour
		s.model.Script("drip", script)
		if got := s.register(registry.Spec{}).chat("drip", ""); !bytes.Equal(got.body, script.Body) {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	})
}

// R99: connecting has a short budget of its own, which the message names.
func TestConnectBudgetIsShortAndNamed(t *testing.T) {
	blackhole := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		began := time.Now()
		r.chat("openai", streaming).wantTimeout(s.t, "connect budget")
		if took := time.Since(began); took > 10*time.Second {
			s.t.Errorf("connecting took %s", took)
		}
		r.wantTurns(0, registry.FailureTimeout)
		s.wantLogged(logged{Outcome: "upstream_timeout", Status: 504})
		s.wantIdle()
	}, func(s *settings) { s.dial = blackhole })
}

// R97: the budgets are settings.
func TestBudgetsAreSettings(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		r.chat("silent", "").wantTimeout(s.t, "first byte budget of 1m0s")
		if got := r.chat("stream-hang", usageAsked); !strings.Contains(string(got.body), "idle budget of 2m0s") {
			s.t.Errorf("got %s", got.body)
		}
	}, func(s *settings) { s.proxy.FirstByteTimeout, s.proxy.IdleTimeout = time.Minute, 2*time.Minute })
}

// R100: a slow reader is not cut as long as it reads.
func TestSlowButSteadyReaderIsNotCut(t *testing.T) {
	bubble(t, func(s *stack) {
		big := []byte(`{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"` + strings.Repeat("a", 8<<20) + `"}}]}`)
		s.model.Script("big-json", scripted.JSON(big))
		r := s.register(registry.Spec{})
		for _, model := range []string{"stream-8mb-line", "big-json"} {
			l := r.open(model, usageAsked)
			var got int
			for buf := make([]byte, 64<<10); ; {
				n, err := io.ReadFull(l.Body, buf)
				got += n
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0 && got >= 8<<20 {
					break
				}
				if err != nil {
					s.t.Fatalf("%s: after %d bytes: %v", model, got, err)
				}
				time.Sleep(5 * time.Second) // 8 MiB in eleven minutes, over the budget for one write
			}
		}
		r.wantTurns(2)
	}, ticksRarely)
}

// ticksRarely keeps a relay's timer from waiting for a blocked write: to a
// bubble a goroutine that waits for a lock is busy, and its time stands still.
func ticksRarely(s *settings) { s.proxy.Keepalive, s.proxy.IdleTimeout = -1, 24*time.Hour }
