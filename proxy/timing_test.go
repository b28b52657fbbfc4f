package proxy_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// version makes a weight version of JSON.
func version(t *testing.T, text string) registry.Version {
	t.Helper()
	var v registry.Version
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// L53: weights that change during a turn are both on it.
func TestWeightVersionIsStampedAtDispatchAndAtTheEnd(t *testing.T) {
	bubble(t, func(s *stack) {
		target, _ := s.upstreams.Get("default")
		set := func(text string) {
			if err := target.SetWeightVersion("", version(s.t, text)); err != nil {
				s.t.Fatal(err)
			}
		}
		set("16")
		gate := s.gated("gated", scripted.SSE(scripted.Fixture("openai/chat-usage.sse")))
		r := s.register(registry.Spec{})
		l := r.open("gated", usageAsked)
		set("17")
		gate.Open()
		if _, err := l.rest(); err != nil {
			s.t.Fatal(err)
		}
		want := registry.VersionSpan{Start: version(s.t, "16"), End: version(s.t, "17")}
		if turn := r.turns()[0]; turn.WeightVersion != want {
			s.t.Errorf("the turn is of %v", turn.WeightVersion)
		}
		if got := r.session.Summary().WeightVersion; got.Min != want.Start || got.Max != want.End {
			s.t.Errorf("the session is of %v", got)
		}
	})
}

// A turn's times are those of the upstream as the harness saw it.
func TestTurnHasItsTimes(t *testing.T) {
	bubble(t, func(s *stack) {
		script := scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
		script.Delay, script.Gap = 7*time.Second, time.Second
		s.model.Script("timed", script)
		r := s.register(registry.Spec{})
		began := time.Now()
		got := r.chat("timed", usageAsked)
		took := time.Since(began)
		turn := r.turns()[0]
		if !turn.StartedAt.Equal(began) || turn.TimeToFirstEvent != 7*time.Second || turn.Duration != took || got.err != nil {
			s.t.Errorf("the turn started at %s, first event after %s, took %s; want %s, 7s, %s", turn.StartedAt, turn.TimeToFirstEvent, turn.Duration, began, took)
		}
	})
}

// What the upstream took is not counted as muxproxy's own time.
func TestWaitingForTheUpstreamIsNotOverhead(t *testing.T) {
	bubble(t, func(s *stack) {
		slow := func(script scripted.Script) scripted.Script {
			script.Delay = 10 * time.Second
			return script
		}
		stream := slow(scripted.SSE(scripted.Fixture("openai/chat-usage.sse")))
		stream.Gap = 5 * time.Second
		s.model.Script("json", slow(scripted.JSON(scripted.Fixture("openai/chat.json"))))
		s.model.Script("stream", stream)
		s.model.Script("429", slow(scripted.Error(429, scripted.Fixture("errors/429.json"))))
		s.model.Sequence("refuses-usage", slow(scripted.Error(400, scripted.Fixture("errors/stream-options.json"))), stream)
		s.model.Script("silent", scripted.Script{NoHeader: true, End: scripted.Hang})
		r := s.register(registry.Spec{Limits: registry.Limits{RequestsPerSecond: new(0.2)}})
		for _, model := range []string{"json", "stream", "429", "refuses-usage", "silent"} {
			r.chat(model, streaming)
			synctest.Wait()
			all := s.logged()
			if overhead := all[len(all)-1].Overhead; overhead > 0.001 {
				s.t.Errorf("%s: %gs count as muxproxy's own", model, overhead)
			}
		}
	})
}
