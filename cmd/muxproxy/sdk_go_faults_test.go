package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"golang.org/x/sync/errgroup"
)

// wantError checks that err is an API error with the status and code.
func wantError(t *testing.T, err error, status int, code string) {
	t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Fatalf("got %v; want %d %s", err, status, code)
	}
	if e.StatusCode != status || e.Code != code {
		t.Errorf("got %d %s; want %d %s: %s", e.StatusCode, e.Code, status, code, e.RawJSON())
	}
}

// goFaults checks refusals, errors, broken streams, loads and clients that leave.
func goFaults(t *testing.T, s *sdkStage, c *sdkClient) {
	t.Helper()
	t.Run("refusals are not retried", func(t *testing.T) {
		for key, want := range map[string]struct {
			status int
			code   string
		}{
			"UNKNOWN": {http.StatusUnauthorized, "invalid_api_key"},
			"ENDED":   {http.StatusGone, "session_ended"},
			"STOPPED": {http.StatusBadRequest, "session_stopped"},
		} {
			c := s.client(s.keys[key])
			_, err := c.chat(t.Context(), "openai")
			wantError(t, err, want.status, want.code)
			_, _, err = c.stream(t.Context(), asking("openai"))
			wantError(t, err, want.status, want.code)
			if n := c.requests.Load(); n != 2 {
				t.Errorf("%s: %d requests for 2 calls", key, n)
			}
		}
	})
	t.Run("turn limit", func(t *testing.T) {
		c := s.client(s.keys["ONE_TURN"])
		if _, _, err := c.stream(t.Context(), asking("openai")); err != nil {
			t.Fatal(err)
		}
		_, err := c.chat(t.Context(), "openai")
		wantError(t, err, http.StatusBadRequest, "session_stopped")
	})
	t.Run("context overflow", func(t *testing.T) {
		c := s.client(s.keys["CONTEXT"])
		_, err := c.chat(t.Context(), "400-context-openai")
		wantError(t, err, http.StatusBadRequest, "context_length_exceeded")
		_, err = c.chat(t.Context(), "openai")
		wantError(t, err, http.StatusBadRequest, "session_stopped")
	})
	t.Run("rate limit is retried", func(t *testing.T) {
		c := s.client(s.active.Secret)
		if _, err := c.chat(t.Context(), "429-once"); err != nil || c.requests.Load() != 2 {
			t.Errorf("%d requests, %v", c.requests.Load(), err)
		}
	})
	t.Run("upstream errors", func(t *testing.T) {
		for model, want := range map[string]struct {
			status int
			code   string
		}{
			"404":               {http.StatusNotFound, "model_not_found"},
			"429":               {http.StatusTooManyRequests, "rate_limit_exceeded"},
			"500":               {http.StatusInternalServerError, ""},
			"401":               {http.StatusBadGateway, "upstream_auth"},
			"html":              {http.StatusBadGateway, "upstream_invalid"},
			"302":               {http.StatusBadGateway, "upstream_invalid"},
			"truncated-length":  {http.StatusBadGateway, "upstream_invalid"},
			"truncated-chunked": {http.StatusBadGateway, "upstream_invalid"},
		} {
			t.Run(model, func(t *testing.T) {
				_, err := c.chat(t.Context(), model)
				wantError(t, err, want.status, want.code)
			})
		}
	})
	t.Run("unclean streams", func(t *testing.T) {
		for _, model := range []string{"error-after-text", "error-first", "abort", "reset", "half-event", "no-terminal"} {
			chunks, _, err := c.stream(t.Context(), asking("stream-"+model))
			if _, glued := errors.AsType[*json.SyntaxError](err); err == nil || glued {
				t.Errorf("%s ended after %d chunks with %v", model, len(chunks), err)
			}
		}
	})
	t.Run("keepalives", func(t *testing.T) {
		chunks, _, err := c.stream(t.Context(), asking("stream-ids-slow"))
		if err != nil || textOf(chunks) != sdkText {
			t.Errorf("got %v, %q", err, textOf(chunks))
		}
	})
	t.Run("large bodies", func(t *testing.T) {
		p := asking("openai")
		p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("0123456789abcdef", 1<<19))}
		if _, err := c.Chat.Completions.New(t.Context(), p); err != nil {
			t.Error(err)
		}
		chunks, _, err := c.stream(t.Context(), asking("stream-8mb-line"))
		if n := len(textOf(chunks)); err != nil || n != 8<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	t.Run("parallel calls", func(t *testing.T) {
		g, ctx := errgroup.WithContext(t.Context())
		for n := range 64 {
			g.Go(func() error {
				if n%2 == 0 {
					_, err := c.chat(ctx, "openai")
					return err
				}
				chunks, _, err := c.stream(ctx, asking("openai"))
				if err == nil && textOf(chunks) != sdkText {
					return fmt.Errorf("stream %d: %q", n, textOf(chunks))
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("cancel and timeout", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := c.Chat.Completions.NewStreaming(ctx, asking("stream-hang"))
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
		cancel()
		if stream.Next() || !errors.Is(stream.Err(), context.Canceled) {
			t.Errorf("after the cancel: %v", stream.Err())
		}
		if _, err := c.chat(t.Context(), "silent", option.WithRequestTimeout(500*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the timeout: %v", err)
		}
		if _, err := c.chat(t.Context(), "openai"); err != nil {
			t.Errorf("the session does not work any more: %v", err)
		}
	})
}
