package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// L40: a session that ends takes its calls with it, at once.
func TestEndedSessionCancelsItsCalls(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		var got answer
		var calling sync.WaitGroup
		calling.Go(func() { got = r.chat("silent", "") })
		synctest.Wait()
		began := time.Now()
		summary, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{})
		if err != nil || summary.FailedCalls[registry.FailureCancelled] != 1 || time.Since(began) != 0 {
			s.t.Errorf("after %s the summary is %+v, %v", time.Since(began), summary, err)
		}
		calling.Wait()
		got.wantError(s.t, 410, "session_ended")
		s.wantCanceled()
		s.wantLogged(logged{Outcome: "cancelled", Status: 410})
		s.wantIdle()
		r.chat("openai", "").wantError(s.t, 410, "session_ended")
		s.wantLogged(logged{Outcome: "refused", Status: 410})
	})
}

// A model list that nobody waits for any more is no error of muxproxy's.
func TestClientThatLeavesAModelListIsADisconnect(t *testing.T) {
	bubble(t, func(s *stack) {
		list := scripted.JSON(nil)
		list.NoHeader, list.End = true, scripted.Hang
		s.model.Script("GET /v1/models", list)
		r := s.register(registry.Spec{})
		req, leave := abandonable(r.request(http.MethodGet, "/v1/models", ""))
		var calling sync.WaitGroup
		calling.Go(func() {
			if res, err := s.client.Do(req); err == nil {
				res.Body.Close()
			}
		})
		synctest.Wait()
		leave()
		calling.Wait()
		s.wantLogged(logged{Outcome: "client_disconnected", Route: "/v1/models"})
		s.wantCanceled()
		s.wantIdle()
	})
}

// R44: whatever ends calls meet, no place is lost.
func TestNoPlaceIsLostOverMixedEnds(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(8)}})
		ends := []func(){
			func() { r.chat("openai", streaming) },
			func() { r.chat("openai", "") },
			func() { r.chat("stream-reset", streaming) },
			func() { r.chat("reset-at-once", "") },
			func() { r.chat("truncated-length", "") },
			func() { r.chat("400-stream-options", streaming) },
			func() { r.chat("refuses-usage-422", streaming) },
			func() { r.chat("404", streaming) },
			func() { r.chat("401", streaming) },
			func() { r.chat("sglang-abort", streaming) },
			func() { r.chat("stream-error-first", streaming) },
			func() { r.chat("gzip-damaged", "") },
			func() { r.chat("br", "") },
			func() { r.chat("302", "") },
			func() { r.chat("html", streaming) },
			func() { r.chat("silent", "") },
			func() { r.do(r.request(http.MethodPost, chatPath, "{")) },
			func() {
				ctx, leave := context.WithTimeout(s.t.Context(), 700*time.Millisecond)
				defer leave()
				res, err := s.client.Do(r.request(http.MethodPost, chatPath, chatBody("stream-hang", streaming)).WithContext(ctx))
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body) // it ends when the client leaves
					res.Body.Close()
				}
			},
		}
		var calling sync.WaitGroup
		for i := range 40 * len(ends) {
			calling.Go(func() { ends[i%len(ends)]() })
		}
		calling.Wait()
		s.wantIdle()
		synctest.Wait()
		total := 0
		for _, n := range s.outcomes() {
			total += n
		}
		if want := 40 * len(ends); total != want || len(s.logged()) != want {
			s.t.Errorf("%d requests are counted and %d logged, want %d", total, len(s.logged()), want)
		}
	}, func(set *settings) {
		set.proxy.FirstByteTimeout = time.Second
		set.registry.AdmitTimeout = time.Hour
	})
}

// A client that closes its half of the connection has left; an empty 200 would
// be an answer that it could take for a whole one.
func TestCallOfAClientThatClosedItsHalfIsNotAnswered(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := r.request(http.MethodPost, chatPath, chatBody("silent", "")).Write(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := s.model.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 {
		t.Errorf("the client got %q, %v", got, err)
	}
	r.settle()
	r.wantTurns(0, registry.FailureClientDisconnected)
}
