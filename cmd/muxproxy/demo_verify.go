package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// deliveryPolls is how often a trace is read at most, demoPace apart.
const deliveryPolls = 200

// demoTrace is what the demo reads of GET /sessions/{id}/trace.
type demoTrace struct {
	Turns []demoTurn `json:"turns"`
}

type demoTurn struct {
	Index    int         `json:"index"`
	Parent   *int        `json:"parent"`
	Request  chatRequest `json:"request"`
	Response struct {
		Choices []struct {
			Message chatMessage `json:"message"`
		} `json:"choices"`
	} `json:"response"`
	Choices []struct {
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage     tokens `json:"usage"`
	Delivered *bool  `json:"delivered"` // nil while it is not known
}

// tokens is what the demo reads of a usage. A turn's input is its whole
// prompt; a session's is what each turn added.
type tokens struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

// verifyDemo compares every trace with what its harness saw, and every session
// with how it was meant to end. It ends the sessions: a trace is read when
// nothing is added to it any more.
func verifyDemo(ctx context.Context, client *adminClient, all []*demoRollout) error {
	var wrong []error
	for _, r := range all {
		if err := r.verify(ctx, client); err != nil {
			wrong = append(wrong, fmt.Errorf("rollout %s: %w", r.id, err))
		}
	}
	return errors.Join(wrong...)
}

func (r *demoRollout) verify(ctx context.Context, client *adminClient) error {
	var summary struct {
		StopCondition string `json:"stop_condition"`
		Turns         int    `json:"turns"`
		Usage         tokens `json:"usage"`
	}
	if err := client.call(ctx, http.MethodDelete, "/sessions/"+r.id, nil, &summary); err != nil {
		return err
	}
	if err := r.readTrace(ctx, client); err != nil {
		return err
	}
	if err := r.compare(r.trace); err != nil {
		return err
	}
	r.outcome, r.usage = "completed", summary.Usage
	if summary.StopCondition != "" {
		r.outcome = "stopped: " + summary.StopCondition
	}
	told := ""
	if r.harness.refusal != nil {
		told = cmp.Or(r.harness.refusal.StopCondition, r.harness.refusal.Error.Code)
	}
	if summary.StopCondition != r.want || told != r.want || summary.Turns != len(r.trace.Turns) {
		return fmt.Errorf("ended with %q after %d turns, the harness was told %q; want %q after %d",
			summary.StopCondition, summary.Turns, told, r.want, len(r.trace.Turns))
	}
	return nil
}

// readTrace reads the trace. That an answer was delivered is known a moment
// after the harness has it, so until then it is read again.
func (r *demoRollout) readTrace(ctx context.Context, client *adminClient) error {
	for range deliveryPolls {
		r.trace = demoTrace{}
		if err := client.call(ctx, http.MethodGet, "/sessions/"+r.id+"/trace", nil, &r.trace); err != nil {
			return err
		}
		if !slices.ContainsFunc(r.trace.Turns, func(turn demoTurn) bool { return turn.Delivered == nil }) {
			return nil
		}
		select {
		case <-time.After(demoPace):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil // compare says what is missing
}

// compare holds the trace against what the harness sent and received.
func (r *demoRollout) compare(trace demoTrace) error {
	if got, want := len(trace.Turns), len(r.harness.answers); got != want {
		return fmt.Errorf("trace has %d turns; the harness saw %d", got, want)
	}
	ours := fmt.Sprintf("Task %d:", r.harness.task)
	var seen chatUsage
	for i, turn := range trace.Turns {
		if len(turn.Response.Choices) != 1 || len(turn.Choices) != 1 || !sameMessage(turn.Response.Choices[0].Message, r.harness.answers[i]) {
			return fmt.Errorf("turn %d: recorded %+v; the harness saw %+v", i, turn.Response.Choices, r.harness.answers[i])
		}
		if turn.Delivered == nil || !*turn.Delivered {
			return fmt.Errorf("turn %d: not recorded as delivered", i)
		}
		if i > 0 && (turn.Parent == nil || *turn.Parent != i-1) {
			return fmt.Errorf("turn %d: does not follow turn %d", i, i-1)
		}
		for _, m := range turn.Request.Messages {
			if m.Role == "user" && !strings.HasPrefix(m.Content, ours) {
				return fmt.Errorf("turn %d: holds another rollout's prompt: %s", i, m.Content)
			}
		}
		seen.PromptTokens += turn.Usage.Input
		seen.CompletionTokens += turn.Usage.Output
	}
	// Streams tell the harness nothing.
	if !r.harness.stream && (seen != r.harness.usage || seen.CompletionTokens == 0) {
		return fmt.Errorf("trace has usage %+v; the harness was told %+v", seen, r.harness.usage)
	}
	return nil
}

func sameMessage(a, b chatMessage) bool {
	for _, m := range []*chatMessage{&a, &b} {
		if len(m.ToolCalls) == 0 {
			m.ToolCalls = nil
			continue
		}
		calls := make([]chatTool, len(m.ToolCalls))
		for i, call := range m.ToolCalls {
			call.Index = nil
			calls[i] = call
		}
		m.ToolCalls = calls
	}
	return reflect.DeepEqual(a, b)
}
