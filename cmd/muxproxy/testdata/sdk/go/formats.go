package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// comparison is what the scripted model says to the results of its calls.
const comparison = "Paris is warmer than Oslo."

// formats checks text completions and the Responses API.
func formats(s stage) []check {
	c := s.once()
	return []check{
		{"completions_json", c.completion},
		{"completions_stream", c.completionStreamed},
		{"responses_json", c.response},
		{"responses_stream", c.responseStreamed},
		{"responses_tools_in_two_turns", c.responseTools},
		{"responses_broken_stream", c.responseBroken},
		{"responses_of_another_session", s.foreignResponse},
	}
}

func completing() openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model:  "openai",
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{15339, 11}},
	}
}

func (c *client) completion(ctx context.Context) error {
	done, err := c.Completions.New(ctx, completing())
	if err != nil {
		return err
	}
	if done.Choices[0].Text != " world." || done.Usage.TotalTokens != 5 {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

func (c *client) completionStreamed(ctx context.Context) error {
	stream := c.Completions.NewStreaming(ctx, completing())
	var b strings.Builder
	for stream.Next() {
		chunk := stream.Current()
		b.WriteString(chunk.Choices[0].Text)
		if strings.Contains(chunk.RawJSON(), `"usage"`) {
			return fmt.Errorf("usage that was not asked for: %s", chunk.RawJSON())
		}
	}
	if b.String() != " world." {
		return fmt.Errorf("got %q", b.String())
	}
	return errors.Join(stream.Err(), stream.Close())
}

func responding(model string, input ...responses.ResponseInputItemUnionParam) responses.ResponseNewParams {
	if input == nil {
		input = append(input, responses.ResponseInputItemParamOfMessage("Hi", responses.EasyInputMessageRoleUser))
	}
	return responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
	}
}

func (c *client) response(ctx context.Context) error {
	done, err := c.Responses.New(ctx, responding("openai"))
	if err != nil {
		return err
	}
	if done.OutputText() != text || done.Usage.TotalTokens != 25 {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

// responseStream reads a stream to its end and returns its last event.
func (c *client) responseStream(ctx context.Context, p responses.ResponseNewParams) (last responses.ResponseStreamEventUnion, err error) {
	stream := c.Responses.NewStreaming(ctx, p)
	for stream.Next() {
		last = stream.Current()
	}
	return last, errors.Join(stream.Err(), stream.Close())
}

func (c *client) responseStreamed(ctx context.Context) error {
	last, err := c.responseStream(ctx, responding("openai"))
	if err != nil {
		return err
	}
	if last.Type != "response.completed" || last.Response.OutputText() != text {
		return fmt.Errorf("the last event is %s", last.RawJSON())
	}
	return nil
}

func (c *client) responseTools(ctx context.Context) error {
	p := responding("openai")
	p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("get_weather", map[string]any{"type": "object"}, false)}
	last, err := c.responseStream(ctx, p)
	if err != nil {
		return err
	}
	var results []responses.ResponseInputItemUnionParam
	for _, item := range last.Response.Output {
		if item.Type != "function_call" {
			continue
		}
		result := responses.ResponseInputItemParamOfFunctionCallOutput("18 °C")
		result.OfFunctionCallOutput.CallID = openai.String(item.CallID)
		results = append(results, result)
	}
	if len(results) != 2 {
		return fmt.Errorf("the last event is %s", last.RawJSON())
	}
	p = responding("openai", results...)
	p.PreviousResponseID = openai.String(last.Response.ID)
	done, err := c.Responses.New(ctx, p)
	if err != nil {
		return err
	}
	if done.OutputText() != comparison {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

func (c *client) responseBroken(ctx context.Context) error {
	last, err := c.responseStream(ctx, responding("responses-abort"))
	if err == nil {
		return fmt.Errorf("the stream ended cleanly with %s", last.RawJSON())
	}
	if last.Type == "response.completed" {
		return fmt.Errorf("the stream looks whole: %w", err)
	}
	return nil
}

func (s stage) foreignResponse(ctx context.Context) error {
	done, err := s.once().Responses.New(ctx, responding("openai"))
	if err != nil {
		return err
	}
	other := s.client(s.keys["ONE_TURN"])
	p := responding("openai")
	p.PreviousResponseID = openai.String(done.ID)
	_, err = other.Responses.New(ctx, p)
	if n := other.requests.Load(); n != 1 {
		return fmt.Errorf("%d requests", n)
	}
	return wantError(err, http.StatusBadRequest, "invalid_request")
}
