package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// faults checks what becomes of an upstream's errors and of streams that break.
func faults(s stage) []check {
	c := s.once()
	all := []check{{"rate_limit_is_retried", s.rateLimit}}
	for _, f := range []struct {
		model  string
		status int
		code   string
	}{
		{"404", http.StatusNotFound, "model_not_found"},
		{"429", http.StatusTooManyRequests, "rate_limit_exceeded"},
		{"500", http.StatusInternalServerError, ""},
		{"401", http.StatusBadGateway, "upstream_auth"},
		{"html", http.StatusBadGateway, "upstream_invalid"},
		{"302", http.StatusBadGateway, "upstream_invalid"},
		{"truncated-length", http.StatusBadGateway, "upstream_invalid"},
		{"truncated-chunked", http.StatusBadGateway, "upstream_invalid"},
	} {
		all = append(all, check{"upstream_errors[" + f.model + "]", func(ctx context.Context) error {
			_, err := c.chat(ctx, f.model)
			return wantError(err, f.status, f.code)
		}})
	}
	for _, model := range []string{"error-after-text", "error-first"} {
		all = append(all, check{"error_in_the_stream[" + model + "]", c.breaks("stream-" + model)})
	}
	for _, model := range []string{"abort", "reset", "half-event", "no-terminal"} {
		all = append(all, check{"broken_stream_is_no_clean_end[" + model + "]", c.breaks("stream-" + model)})
	}
	return all
}

func (s stage) rateLimit(ctx context.Context) error {
	c := s.client(s.active)
	if _, err := c.chat(ctx, "429-once"); err != nil {
		return err
	}
	if n := c.requests.Load(); n != 2 {
		return fmt.Errorf("%d requests; want 2", n)
	}
	return nil
}

// breaks checks that the model's stream ends with an error, and not because events were glued together.
func (c *client) breaks(model string) func(context.Context) error {
	return func(ctx context.Context) error {
		chunks, _, err := c.stream(ctx, asking(model))
		if err == nil {
			return fmt.Errorf("a clean end after %d chunks", len(chunks))
		}
		if _, glued := errors.AsType[*json.SyntaxError](err); glued {
			return fmt.Errorf("after %d chunks: %w", len(chunks), err)
		}
		return nil
	}
}
