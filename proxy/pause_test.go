package proxy_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func (s *stack) pause(o upstream.Pause) *upstream.Upstream {
	s.t.Helper()
	u, _ := s.upstreams.Get("default")
	if err := u.Pause(s.t.Context(), o); err != nil {
		s.t.Error(err)
	}
	return u
}

func TestHeldCallIsAnsweredAfterThePauseAndTimedFromThere(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Func("m", answering)
		r := s.register(registry.Spec{})
		for _, extra := range []string{"", usageAsked} {
			u := s.pause(upstream.Pause{Timeout: time.Hour})
			time.AfterFunc(30*time.Minute, func() { u.Resume(registry.IntVersion(18)) })
			if got := r.chat("m", extra); got.StatusCode != http.StatusOK || got.err != nil {
				s.t.Errorf("got status %d, %v, body %s", got.StatusCode, got.err, got.body)
			}
		}
		r.settle()
		r.wantTurns(2)
		for _, turn := range r.turns() {
			if turn.WeightVersion.Start != registry.IntVersion(18) || turn.Duration > time.Minute {
				s.t.Errorf("turn: got version %v, duration %s; want the new version, and the model's own time", turn.WeightVersion.Start, turn.Duration)
			}
		}
	}, func(s *settings) { s.proxy.FirstByteTimeout = time.Minute })
}

func TestPausedUpstreamThatRejectsMakesNoFailedCall(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Func("m", answering)
		r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(1))}})
		u := s.pause(upstream.Pause{Mode: upstream.PauseReject, Timeout: 10 * time.Minute})
		got := r.chat("m", "")
		got.wantError(s.t, http.StatusTooManyRequests, "paused")
		if after := got.Header.Get("Retry-After"); after != "60" || got.Header.Get("X-Should-Retry") != "" {
			s.t.Errorf("Retry-After: got %q; want 60, and no word against retrying", after)
		}
		r.settle()
		r.wantTurns(0)
		u.Resume(registry.Version{})
		if got := r.chat("m", ""); got.StatusCode != http.StatusOK {
			s.t.Errorf("after the pause: got %d; want 200, for the turn was given back", got.StatusCode)
		}
		s.pause(upstream.Pause{Mode: upstream.PauseReject})
		r.chat("m", "").wantError(s.t, http.StatusBadRequest, "session_stopped")
		u.Resume(registry.Version{})
	})
}

func TestPauseThatAbortsNeverLooksLikeAnEnd(t *testing.T) {
	for _, model := range []string{"silent", "stream-hang"} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			time.AfterFunc(time.Second, func() {
				s.pause(upstream.Pause{Inflight: upstream.InflightAbort}).Resume(registry.Version{})
			})
			got := r.chat(model, usageAsked)
			switch {
			case model == "silent":
				got.wantError(s.t, http.StatusServiceUnavailable, "upstream_unavailable")
				if got.Header.Get("Retry-After") == "" {
					s.t.Error("want a Retry-After")
				}
			case got.err == nil || strings.Contains(string(got.body), "[DONE]") || !strings.Contains(string(got.body), `"error"`):
				s.t.Errorf("stream: got %q, ended with %v; want an error event and a broken connection", got.body, got.err)
			}
			r.settle()
			r.wantTurns(0, registry.FailureAborted)
			s.wantIdle()
		})
	}
}
