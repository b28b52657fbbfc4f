package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
)

// answers checks that answers come as upstream gave them.
func answers(s stage) []check {
	c := s.once()
	all := []check{
		{"json", c.json},
		{"stream", c.streamed},
		{"stream_with_usage", c.streamedWithUsage},
		{"tools_in_two_turns", c.tools},
		{"tools_streamed_in_two_turns", c.toolsStreamed},
		{"logprobs", c.logprobs},
		{"two_choices", c.twoChoices},
		{"models", c.models},
	}
	// Without lines that end in CR alone, which this SDK does not read.
	for _, model := range []string{"crlf", "no-space", "comments", "event-lines"} {
		all = append(all, check{"framing[" + model + "]", func(ctx context.Context) error {
			return c.streamsText(ctx, "stream-"+model)
		}})
	}
	for _, model := range []string{"no-done", "no-finish-reason"} {
		all = append(all, check{"ends_that_are_clean[" + model + "]", func(ctx context.Context) error {
			return c.streamsText(ctx, "stream-"+model)
		}})
	}
	return all
}

func (c *client) json(ctx context.Context) error {
	done, err := c.chat(ctx, "openai")
	if err != nil {
		return err
	}
	if done.Choices[0].Message.Content != text || done.Usage.TotalTokens != 25 {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

func (c *client) streamed(ctx context.Context) error {
	chunks, all, err := c.stream(ctx, asking("openai"))
	if err != nil {
		return err
	}
	if all.Choices[0].Message.Content != text || all.Choices[0].FinishReason != "stop" {
		return fmt.Errorf("got %+v", all)
	}
	for _, chunk := range chunks {
		if strings.Contains(chunk.RawJSON(), `"usage"`) || len(chunk.Choices) == 0 {
			return fmt.Errorf("usage that was not asked for: %s", chunk.RawJSON())
		}
	}
	return nil
}

func (c *client) streamedWithUsage(ctx context.Context) error {
	p := asking("openai")
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	chunks, all, err := c.stream(ctx, p)
	if err != nil {
		return err
	}
	if textOf(chunks) != text || all.Usage.TotalTokens != 25 {
		return fmt.Errorf("got %+v", all)
	}
	if last := chunks[len(chunks)-1]; len(last.Choices) != 0 || !strings.Contains(chunks[0].RawJSON(), `"usage":null`) {
		return fmt.Errorf("first %s, last %s", chunks[0].RawJSON(), last.RawJSON())
	}
	return nil
}

const answer = "It is 18 °C in Paris and 14 °C in København."

func (c *client) tools(ctx context.Context) error {
	p := askingWithTools()
	first, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	p, err = withResults(p, first.Choices[0].Message)
	if err != nil {
		return err
	}
	done, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	if done.Choices[0].Message.Content != answer {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

func (c *client) toolsStreamed(ctx context.Context) error {
	p := askingWithTools()
	_, first, err := c.stream(ctx, p)
	if err != nil {
		return err
	}
	if first.Choices[0].FinishReason != "tool_calls" {
		return fmt.Errorf("got %+v", first)
	}
	p, err = withResults(p, first.Choices[0].Message)
	if err != nil {
		return err
	}
	chunks, _, err := c.stream(ctx, p)
	if err != nil {
		return err
	}
	if textOf(chunks) != answer {
		return fmt.Errorf("got %q", textOf(chunks))
	}
	return nil
}

func askingWithTools() openai.ChatCompletionNewParams {
	p := asking("openai")
	for _, name := range []string{"get_weather", "now"} {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: name}))
	}
	return p
}

// withResults is the request of the turn after the message, whose calls it checks.
func withResults(p openai.ChatCompletionNewParams, m openai.ChatCompletionMessage) (openai.ChatCompletionNewParams, error) {
	var calls []string
	p.Messages = append(slices.Clip(p.Messages), m.ToParam())
	for _, call := range m.ToolCalls {
		calls = append(calls, call.Function.Name+call.Function.Arguments)
		p.Messages = append(p.Messages, openai.ToolMessage("18 °C", call.ID))
	}
	want := []string{`get_weather{"city":"Paris"}`, `get_weather{"city":"København"}`, `now{}`}
	if !slices.Equal(calls, want) {
		return p, fmt.Errorf("calls %q; want %q", calls, want)
	}
	return p, nil
}

func (c *client) logprobs(ctx context.Context) error {
	p := asking("openai")
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
	_, all, err := c.stream(ctx, p)
	if err != nil {
		return err
	}
	if len(all.Choices[0].Logprobs.Content) != 6 {
		return fmt.Errorf("got %+v", all)
	}
	return nil
}

func (c *client) twoChoices(ctx context.Context) error {
	p := asking("openai")
	p.N = openai.Int(2)
	_, all, err := c.stream(ctx, p)
	if err != nil {
		return err
	}
	if len(all.Choices) != 2 || all.Choices[1].Message.Content != "Tails." {
		return fmt.Errorf("got %+v", all)
	}
	return nil
}

func (c *client) models(ctx context.Context) error {
	page, err := c.Models.List(ctx)
	if err != nil {
		return err
	}
	if len(page.Data) != 2 {
		return fmt.Errorf("got %s", page.RawJSON())
	}
	model, err := c.Models.Get(ctx, "gpt-4.1-mini")
	if err != nil {
		return err
	}
	if model.OwnedBy != "system" {
		return fmt.Errorf("got %s", model.RawJSON())
	}
	return nil
}
