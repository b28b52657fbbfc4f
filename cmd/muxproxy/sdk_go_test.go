package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	sdkText   = "Hello! How can I help?"
	sdkAnswer = "It is 18 °C in Paris and 14 °C in København."
)

// sdkClient is an official client that counts its HTTP requests.
type sdkClient struct {
	openai.Client
	requests atomic.Int64
}

func (s *sdkStage) client(secret string, options ...option.RequestOption) *sdkClient {
	c := &sdkClient{}
	c.Client = openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.active.BaseURL),
		option.WithAPIKey(secret),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			c.requests.Add(1)
			return next(req)
		}),
	}, options...)...)
	return c
}

func asking(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")},
	}
}

func (c *sdkClient) chat(ctx context.Context, model string, options ...option.RequestOption) (*openai.ChatCompletion, error) {
	return c.Chat.Completions.New(ctx, asking(model), options...)
}

// stream reads a stream to its end and returns its chunks and what they add up to.
func (c *sdkClient) stream(ctx context.Context, p openai.ChatCompletionNewParams, options ...option.RequestOption) (chunks []openai.ChatCompletionChunk, all openai.ChatCompletion, err error) {
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

func TestOpenAIGoSDK(t *testing.T) {
	t.Parallel()
	s := newSDKStage(t)
	c := s.client(s.active.Secret, option.WithMaxRetries(0))
	goAnswers(t, c)
	goFaults(t, s, c)
	s.verify(t)
}

// goAnswers checks that answers come as upstream gave them.
func goAnswers(t *testing.T, c *sdkClient) {
	t.Helper()
	t.Run("json", func(t *testing.T) {
		done, err := c.chat(t.Context(), "openai")
		if err != nil {
			t.Fatal(err)
		}
		if done.Choices[0].Message.Content != sdkText || done.Usage.TotalTokens != 25 {
			t.Errorf("got %s", done.RawJSON())
		}
	})
	t.Run("stream", func(t *testing.T) {
		chunks, all, err := c.stream(t.Context(), asking("openai"))
		if err != nil || all.Choices[0].Message.Content != sdkText || all.Choices[0].FinishReason != "stop" {
			t.Fatalf("got %v, %+v", err, all)
		}
		for _, chunk := range chunks {
			if strings.Contains(chunk.RawJSON(), `"usage"`) || len(chunk.Choices) == 0 {
				t.Errorf("usage that was not asked for: %s", chunk.RawJSON())
			}
		}
	})
	t.Run("stream with usage", func(t *testing.T) {
		p := asking("openai")
		p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		chunks, all, err := c.stream(t.Context(), p)
		if err != nil || textOf(chunks) != sdkText || all.Usage.TotalTokens != 25 {
			t.Fatalf("got %v, %+v", err, all)
		}
		if last := chunks[len(chunks)-1]; len(last.Choices) != 0 || !strings.Contains(chunks[0].RawJSON(), `"usage":null`) {
			t.Errorf("first %s, last %s", chunks[0].RawJSON(), last.RawJSON())
		}
	})
	t.Run("tools in two turns", func(t *testing.T) {
		p := askingWithTools()
		first, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		done, err := c.Chat.Completions.New(t.Context(), withResults(t, p, first.Choices[0].Message))
		if err != nil || done.Choices[0].Message.Content != sdkAnswer {
			t.Errorf("got %v, %+v", err, done)
		}
	})
	t.Run("tools streamed", func(t *testing.T) {
		p := askingWithTools()
		_, first, err := c.stream(t.Context(), p)
		if err != nil || first.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("got %v, %+v", err, first)
		}
		chunks, _, err := c.stream(t.Context(), withResults(t, p, first.Choices[0].Message))
		if err != nil || textOf(chunks) != sdkAnswer {
			t.Errorf("got %v, %q", err, textOf(chunks))
		}
	})
	t.Run("logprobs and two choices", func(t *testing.T) {
		p := asking("openai")
		p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
		_, all, err := c.stream(t.Context(), p)
		if err != nil || len(all.Choices[0].Logprobs.Content) != 6 {
			t.Errorf("got %v, %+v", err, all)
		}
		p = asking("openai")
		p.N = openai.Int(2)
		_, all, err = c.stream(t.Context(), p)
		if err != nil || len(all.Choices) != 2 || all.Choices[1].Message.Content != "Tails." {
			t.Errorf("got %v, %+v", err, all)
		}
	})
	t.Run("vllm", func(t *testing.T) {
		ids := option.WithJSONSet("return_token_ids", true)
		done, err := c.chat(t.Context(), "vllm", ids)
		if err != nil {
			t.Fatal(err)
		}
		reasoning := done.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw()
		if reasoning != `"The user greets."` || done.JSON.ExtraFields["prompt_token_ids"].Raw()[:7] != "[151644" {
			t.Errorf("got %s", done.RawJSON())
		}
		chunks, _, err := c.stream(t.Context(), asking("vllm"), ids)
		if err != nil || textOf(chunks) != sdkText {
			t.Fatalf("got %v, %q", err, textOf(chunks))
		}
		var all []int
		for _, chunk := range chunks[1:] {
			var some []int
			if err := json.Unmarshal([]byte(chunk.Choices[0].JSON.ExtraFields["token_ids"].Raw()), &some); err != nil {
				t.Fatal(err)
			}
			all = append(all, some...)
		}
		if len(all) != 12 || all[11] != 151645 || chunks[0].JSON.ExtraFields["prompt_token_ids"].Raw() == "" {
			t.Errorf("token ids %v of %s", all, chunks[0].RawJSON())
		}
	})
	t.Run("sglang", func(t *testing.T) {
		chunks, _, err := c.stream(t.Context(), asking("sglang"))
		if err != nil || textOf(chunks) != sdkText {
			t.Fatalf("got %v, %q", err, textOf(chunks))
		}
		last := chunks[len(chunks)-1]
		if last.Choices[0].JSON.ExtraFields["matched_stop"].Raw() != "151645" {
			t.Errorf("last chunk %s", last.RawJSON())
		}
	})
	// Without lines that end in CR alone, which this SDK does not read.
	t.Run("framing", func(t *testing.T) {
		for _, model := range []string{"crlf", "no-space", "comments", "event-lines", "no-done", "no-finish-reason"} {
			chunks, _, err := c.stream(t.Context(), asking("stream-"+model))
			if err != nil || textOf(chunks) != sdkText {
				t.Errorf("%s: %v, %q", model, err, textOf(chunks))
			}
		}
	})
	t.Run("models", func(t *testing.T) {
		page, err := c.Models.List(t.Context())
		if err != nil || len(page.Data) != 2 {
			t.Errorf("got %v, %+v", err, page)
		}
		model, err := c.Models.Get(t.Context(), "gpt-4.1-mini")
		if err != nil || model.OwnedBy != "system" {
			t.Errorf("got %v, %+v", err, model)
		}
	})
}

func askingWithTools() openai.ChatCompletionNewParams {
	p := asking("openai")
	for _, name := range []string{"get_weather", "now"} {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: name}))
	}
	return p
}

// withResults is the request of the turn after the message, whose calls it checks.
func withResults(t *testing.T, p openai.ChatCompletionNewParams, m openai.ChatCompletionMessage) openai.ChatCompletionNewParams {
	t.Helper()
	var calls []string
	p.Messages = append(slices.Clip(p.Messages), m.ToParam())
	for _, call := range m.ToolCalls {
		calls = append(calls, call.Function.Name+call.Function.Arguments)
		p.Messages = append(p.Messages, openai.ToolMessage("18 °C", call.ID))
	}
	want := []string{`get_weather{"city":"Paris"}`, `get_weather{"city":"København"}`, `now{}`}
	if !slices.Equal(calls, want) {
		t.Fatalf("calls %q; want %q", calls, want)
	}
	return p
}
