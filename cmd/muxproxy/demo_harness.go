package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// harness is a program as it runs in a sandbox: it knows a base URL and a key,
// talks to a model until it has what it wants or is refused, and would run
// against the model's own API just the same.
type harness struct {
	baseURL, key string
	client       *http.Client
	stream       bool
	task         int // its number, which is in every prompt
	submit       bool

	answers []chatMessage // what the model said, call by call
	usage   chatUsage     // as the model reported it
	refusal *refusal      // what ended the rollout early
	took    time.Duration
}

// refusal is an error answer of the data plane.
type refusal struct {
	Status int `json:"-"`
	Error  struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"error"`
	StopCondition string `json:"stop_condition"`
}

// run makes up to calls model calls, in one conversation. A refusal ends it and
// is not an error.
func (h *harness) run(ctx context.Context, calls int) error {
	began := time.Now()
	defer func() { h.took = time.Since(began) }()
	messages := []chatMessage{{Role: "system", Content: "You are good at sums. Use the tools."}}
	for call := range calls {
		messages = append(messages, h.next(messages, call, calls))
		answer, err := h.ask(ctx, messages)
		if err != nil || h.refusal != nil {
			return err
		}
		h.answers = append(h.answers, answer)
		messages = append(messages, answer)
	}
	return nil
}

// next is what the harness says: the result of a tool that the model called, or
// the next question.
func (h *harness) next(messages []chatMessage, call, calls int) chatMessage {
	if last := messages[len(messages)-1]; len(last.ToolCalls) > 0 {
		tool := last.ToolCalls[0]
		var sum struct{ A, B int }
		_ = json.Unmarshal([]byte(tool.Function.Arguments), &sum)
		return chatMessage{Role: "tool", ToolCallID: tool.ID, Content: fmt.Sprint(sum.A + sum.B)}
	}
	if h.submit && call >= calls-3 {
		return chatMessage{Role: "user", Content: fmt.Sprintf("Task %d: submit.", h.task)}
	}
	return chatMessage{Role: "user", Content: fmt.Sprintf("Task %d: what is %d + %d?", h.task, h.task, call)}
}

// ask makes one model call.
func (h *harness) ask(ctx context.Context, messages []chatMessage) (chatMessage, error) {
	// A model that muxproxy replaces by the session's.
	body := chatRequest{Model: "whatever-the-harness-thinks", Messages: messages, Stream: h.stream}
	text, err := json.Marshal(body)
	if err != nil {
		return chatMessage{}, fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.baseURL+"/chat/completions", bytes.NewReader(text))
	if err != nil {
		return chatMessage{}, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+h.key)
	response, err := h.client.Do(request)
	if err != nil {
		return chatMessage{}, fmt.Errorf("call model: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		h.refusal = &refusal{Status: response.StatusCode}
		if err := json.NewDecoder(response.Body).Decode(h.refusal); err != nil {
			return chatMessage{}, fmt.Errorf("read refusal %s: %w", response.Status, err)
		}
		return chatMessage{}, nil
	}
	if h.stream {
		message, err := readStream(response.Body)
		// Read to its end, the connection can be used again.
		_, _ = io.Copy(io.Discard, response.Body)
		return message, err
	}
	var answer struct {
		Choices []struct {
			Message chatMessage `json:"message"`
		} `json:"choices"`
		Usage chatUsage `json:"usage"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Choices) != 1 {
		return chatMessage{}, fmt.Errorf("read answer: want one choice: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	h.usage.PromptTokens += answer.Usage.PromptTokens
	h.usage.CompletionTokens += answer.Usage.CompletionTokens
	return answer.Choices[0].Message, nil
}

// readStream puts a message together from its pieces. A stream that ends
// without [DONE] is an error.
func readStream(body io.Reader) (chatMessage, error) {
	message := chatMessage{Role: "assistant"}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return message, nil
		}
		var chunk struct {
			Choices []struct {
				Delta chatMessage `json:"delta"`
			} `json:"choices"`
			Usage json.RawMessage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return message, fmt.Errorf("read event: %w", err)
		}
		if chunk.Usage != nil {
			return message, fmt.Errorf("read event: usage %s, which the harness did not ask for", chunk.Usage)
		}
		for _, choice := range chunk.Choices {
			message.Content += choice.Delta.Content
			for _, piece := range choice.Delta.ToolCalls {
				addPiece(&message, piece)
			}
		}
	}
	return message, fmt.Errorf("read stream: ended early: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

// addPiece adds a piece of a tool call: the first one of each index has the
// name, the others more of the arguments.
func addPiece(message *chatMessage, piece chatTool) {
	if piece.Index == nil || *piece.Index >= len(message.ToolCalls) {
		piece.Index = nil
		message.ToolCalls = append(message.ToolCalls, piece)
		return
	}
	message.ToolCalls[*piece.Index].Function.Arguments += piece.Function.Arguments
}
