package proxy_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// R44: a client that leaves during its upload was never a call.
func TestClientThatLeavesDuringItsUploadIsNoCall(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			body, upload := io.Pipe()
			ctx, leave := context.WithCancel(s.t.Context())
			req := r.request(http.MethodPost, chatPath, "").WithContext(ctx)
			req.Body, req.ContentLength = body, 1000
			if chunked {
				req.ContentLength = -1
			}
			var calling sync.WaitGroup
			calling.Go(func() {
				if res, err := s.client.Do(req); err == nil {
					res.Body.Close()
					s.t.Errorf("half an upload was answered with %d", res.StatusCode)
				}
			})
			if _, err := upload.Write([]byte(`{"model":"openai","messages":[`)); err != nil {
				s.t.Fatal(err)
			}
			synctest.Wait()
			leave()
			upload.CloseWithError(ctx.Err())
			calling.Wait()
			s.wantLogged(logged{Outcome: "client_disconnected", Status: 499})
			if n := len(s.model.Requests()); n != 0 {
				s.t.Errorf("the upstream got %d requests", n)
			}
			r.wantTurns(0)
			s.wantIdle()
		})
	}
}

// A client that stops uploading is told so and dropped.
func TestStalledUploadIsRefused(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		body, upload := io.Pipe()
		defer upload.Close()
		req := r.request(http.MethodPost, chatPath, "")
		req.Body, req.ContentLength = body, 1000
		go upload.Write([]byte(`{"model":"openai",`)) //nolint:errcheck // it ends with the test
		began := time.Now()
		s.do(req).wantError(s.t, 400, "invalid_request")
		if took := time.Since(began); took != time.Minute {
			s.t.Errorf("it took %s", took)
		}
		r.wantTurns(0)
		s.wantIdle()
	})
}

// A slow upload passes as long as it moves.
func TestSlowButSteadyUploadPasses(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		whole := []byte(chatBody("openai", ""))
		req := r.request(http.MethodPost, chatPath, "")
		body, upload := io.Pipe()
		req.Body, req.ContentLength = body, int64(len(whole))
		go func() {
			defer upload.Close()
			for _, b := range whole {
				time.Sleep(30 * time.Second)
				if _, err := upload.Write([]byte{b}); err != nil {
					return
				}
			}
		}()
		if got := s.do(req); got.StatusCode != 200 {
			s.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		r.wantTurns(1)
	})
}
