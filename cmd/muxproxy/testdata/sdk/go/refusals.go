package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
)

// refusals checks that what muxproxy itself refuses reaches the caller as such, and that the SDK does not retry it.
func refusals(s stage) []check {
	return []check{
		{"unknown_key", s.refused("UNKNOWN", http.StatusUnauthorized, "invalid_api_key")},
		{"ended_session", s.refused("ENDED", http.StatusGone, "session_ended")},
		{"stopped_session", s.refused("STOPPED", http.StatusBadRequest, "session_stopped")},
		{"turn_limit", s.turnLimit},
		{"context_overflow", s.contextOverflow},
	}
}

// wantError returns nil when err is an API error with the status and code.
func wantError(err error, status int, code string) error {
	if err == nil {
		return fmt.Errorf("no error; want %d %s", status, code)
	}
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return fmt.Errorf("want %d %s: %w", status, code, err)
	}
	if e.StatusCode != status || e.Code != code {
		return fmt.Errorf("got %d %s; want %d %s: %s", e.StatusCode, e.Code, status, code, e.RawJSON())
	}
	return nil
}

func (s stage) refused(key string, status int, code string) func(context.Context) error {
	return func(ctx context.Context) error {
		c := s.client(s.keys[key])
		_, err := c.chat(ctx, "openai")
		if err := wantError(err, status, code); err != nil {
			return err
		}
		_, _, err = c.stream(ctx, asking("openai"))
		if err := wantError(err, status, code); err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		if n := c.requests.Load(); n != 2 {
			return fmt.Errorf("%d requests for 2 calls", n)
		}
		return nil
	}
}

func (s stage) turnLimit(ctx context.Context) error {
	c := s.client(s.keys["ONE_TURN"])
	if _, _, err := c.stream(ctx, asking("openai")); err != nil {
		return err
	}
	_, err := c.chat(ctx, "openai")
	return wantError(err, http.StatusBadRequest, "session_stopped")
}

func (s stage) contextOverflow(ctx context.Context) error {
	c := s.client(s.keys["CONTEXT"])
	_, err := c.chat(ctx, "400-context-openai")
	if err := wantError(err, http.StatusBadRequest, "context_length_exceeded"); err != nil {
		return err
	}
	_, err = c.chat(ctx, "openai")
	return wantError(err, http.StatusBadRequest, "session_stopped")
}
