package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// loads checks slow, large and parallel calls, and clients that leave.
func loads(s stage) []check {
	c := s.once()
	return []check{
		{"silence_is_filled_with_keepalives", func(ctx context.Context) error { return c.streamsText(ctx, "stream-ids-slow") }},
		{"large_bodies", c.large},
		{"parallel_calls", c.parallel},
		{"cancelled_stream", c.canceled},
		{"timeout", c.timeout},
	}
}

func (c *client) large(ctx context.Context) error {
	p := asking("openai")
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("0123456789abcdef", 1<<19))}
	if _, err := c.Chat.Completions.New(ctx, p); err != nil {
		return err
	}
	chunks, _, err := c.stream(ctx, asking("stream-8mb-line"))
	if err != nil {
		return err
	}
	if n := len(textOf(chunks)); n != 8<<20 {
		return fmt.Errorf("a line of %d bytes", n)
	}
	return nil
}

func (c *client) parallel(ctx context.Context) error {
	var calls sync.WaitGroup
	errs := make([]error, 64)
	for n := range errs {
		calls.Go(func() {
			if n%2 == 0 {
				_, errs[n] = c.chat(ctx, "openai")
			} else {
				errs[n] = c.streamsText(ctx, "openai")
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

func (c *client) canceled(ctx context.Context) error {
	leaving, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.Chat.Completions.NewStreaming(leaving, asking("stream-hang"))
	if !stream.Next() {
		return errors.Join(errors.New("no chunk"), stream.Err())
	}
	cancel()
	if stream.Next() {
		return errors.New("a chunk after the cancel")
	}
	return c.leaves(ctx, stream.Err(), context.Canceled)
}

func (c *client) timeout(ctx context.Context) error {
	_, err := c.chat(ctx, "silent", option.WithRequestTimeout(500*time.Millisecond))
	return c.leaves(ctx, err, context.DeadlineExceeded)
}

// leaves checks that a call ended with want, and that the session still answers.
func (c *client) leaves(ctx context.Context, err, want error) error {
	if err == nil {
		return fmt.Errorf("no error; want %q", want.Error())
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("want %q: %w", want.Error(), err)
	}
	if _, err := c.chat(ctx, "openai"); err != nil {
		return fmt.Errorf("the session does not work any more: %w", err)
	}
	return nil
}
