package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// text is what the scripted models say when they are greeted.
const text = "Hello! How can I help?"

// client is an official client that counts its HTTP requests.
type client struct {
	openai.Client
	requests atomic.Int64
}

func (s stage) client(secret string, options ...option.RequestOption) *client {
	c := &client{}
	c.Client = openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.baseURL),
		option.WithAPIKey(secret),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			c.requests.Add(1)
			return next(req)
		}),
	}, options...)...)
	return c
}

// once is a client of the active session that never retries.
func (s stage) once() *client { return s.client(s.active, option.WithMaxRetries(0)) }

func asking(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")},
	}
}

func (c *client) chat(ctx context.Context, model string, options ...option.RequestOption) (*openai.ChatCompletion, error) {
	return c.Chat.Completions.New(ctx, asking(model), options...)
}

// stream reads a stream to its end and returns its chunks and what they add up to.
func (c *client) stream(ctx context.Context, p openai.ChatCompletionNewParams, options ...option.RequestOption) (chunks []openai.ChatCompletionChunk, all openai.ChatCompletion, err error) {
	stream := c.Chat.Completions.NewStreaming(ctx, p, options...)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		chunk := stream.Current()
		chunks = append(chunks, chunk)
		if !acc.AddChunk(chunk) {
			return chunks, acc.ChatCompletion, errors.New("a chunk that does not belong to the stream")
		}
	}
	return chunks, acc.ChatCompletion, errors.Join(stream.Err(), stream.Close())
}

func textOf(chunks []openai.ChatCompletionChunk) string {
	var b strings.Builder
	for _, c := range chunks {
		if len(c.Choices) > 0 {
			b.WriteString(c.Choices[0].Delta.Content)
		}
	}
	return b.String()
}

// streamsText checks that the model's stream ends cleanly and says text.
func (c *client) streamsText(ctx context.Context, model string) error {
	chunks, _, err := c.stream(ctx, asking(model))
	if err != nil {
		return fmt.Errorf("after %d chunks: %w", len(chunks), err)
	}
	if got := textOf(chunks); got != text {
		return fmt.Errorf("got %q", got)
	}
	return nil
}
