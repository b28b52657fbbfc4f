package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3/option"
)

// extensions checks that fields which OpenAI does not have come through.
func extensions(s stage) []check {
	c := s.once()
	return []check{
		{"vllm_fields", c.vllm},
		{"vllm_stream", c.vllmStreamed},
		{"sglang", c.sglang},
	}
}

func tokenIDs() option.RequestOption { return option.WithJSONSet("return_token_ids", true) }

func (c *client) vllm(ctx context.Context) error {
	done, err := c.chat(ctx, "vllm", tokenIDs())
	if err != nil {
		return err
	}
	reasoning := done.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw()
	if reasoning != `"The user greets."` || done.JSON.ExtraFields["prompt_token_ids"].Raw()[:7] != "[151644" {
		return fmt.Errorf("got %s", done.RawJSON())
	}
	return nil
}

func (c *client) vllmStreamed(ctx context.Context) error {
	chunks, _, err := c.stream(ctx, asking("vllm"), tokenIDs())
	if err != nil {
		return err
	}
	if textOf(chunks) != text {
		return fmt.Errorf("got %q", textOf(chunks))
	}
	var all []int
	for _, chunk := range chunks[1:] {
		var some []int
		raw := chunk.Choices[0].JSON.ExtraFields["token_ids"].Raw()
		if err := json.Unmarshal([]byte(raw), &some); err != nil {
			return fmt.Errorf("read token ids of %s: %w", chunk.RawJSON(), err)
		}
		all = append(all, some...)
	}
	if len(all) != 12 || all[11] != 151645 || chunks[0].JSON.ExtraFields["prompt_token_ids"].Raw() == "" {
		return fmt.Errorf("token ids %v of %s", all, chunks[0].RawJSON())
	}
	return nil
}

func (c *client) sglang(ctx context.Context) error {
	chunks, _, err := c.stream(ctx, asking("sglang"))
	if err != nil {
		return err
	}
	last := chunks[len(chunks)-1]
	if textOf(chunks) != text || last.Choices[0].JSON.ExtraFields["matched_stop"].Raw() != "151645" {
		return fmt.Errorf("got %q; last chunk %s", textOf(chunks), last.RawJSON())
	}
	return nil
}
