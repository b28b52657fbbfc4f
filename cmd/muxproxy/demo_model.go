package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// demoModelName is the model of 'muxproxy demo'. It is a handful of rules and
// knows nothing; no other command can reach it.
const demoModelName = "built-in-demo-model"

// demoModelKey is the credential that the model asks for, to show that the
// harness's own never gets there.
const demoModelKey = "demo-upstream-key"

// demoPace is the silence between two events of a stream.
const demoPace = 5 * time.Millisecond

// demoModel answers POST /v1/chat/completions and GET /v1/models as the model
// APIs do that muxproxy is made for. Equal requests get equal answers.
type demoModel struct{}

// chatMessage is a message of the chat format, as model and harness of the
// demo write it.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []chatTool `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatTool struct {
	Index    *int   `json:"index,omitempty"` // in streams only
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream,omitempty"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options,omitzero"`
}

// ServeHTTP implements http.Handler.
func (m demoModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer "+demoModelKey:
		demoError(w, http.StatusUnauthorized, "wrong key for "+demoModelName)
	case r.URL.Path == "/v1/models":
		writeJSON(w, map[string]any{"object": "list", "data": []any{
			map[string]any{"id": demoModelName, "object": "model", "created": 0, "owned_by": "muxproxy-demo"},
		}})
	case r.URL.Path == "/v1/chat/completions" && r.Method == http.MethodPost:
		m.complete(w, r)
	default:
		demoError(w, http.StatusNotFound, "no such route in "+demoModelName)
	}
}

func (m demoModel) complete(w http.ResponseWriter, r *http.Request) {
	var request chatRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		demoError(w, http.StatusBadRequest, "want JSON with messages")
		return
	}
	if request.Model != demoModelName {
		demoError(w, http.StatusNotFound, "the only model here is "+demoModelName)
		return
	}
	message := m.think(request.Messages)
	finish := "stop"
	if len(message.ToolCalls) > 0 {
		finish = "tool_calls"
	}
	usage := demoUsage(request.Messages, message)
	head := map[string]any{"id": fmt.Sprintf("chatcmpl-demo-%d", usage.TotalTokens), "created": 0, "model": demoModelName}
	if request.Stream {
		head["object"] = "chat.completion.chunk"
		stream := demoStream{w: w, ctx: r.Context(), head: head}
		stream.run(message, finish)
		if request.StreamOptions.IncludeUsage {
			stream.event([]any{}, usage)
		}
		stream.data("[DONE]")
		return
	}
	head["object"] = "chat.completion"
	head["choices"] = []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}}
	head["usage"] = usage
	writeJSON(w, head)
}

// think is the whole intelligence: it calls add for a sum, submit when told
// to, repeats what a tool said, and otherwise excuses itself.
func (demoModel) think(messages []chatMessage) chatMessage {
	last := messages[len(messages)-1]
	answer := chatMessage{Role: "assistant"}
	sum := regexp.MustCompile(`(\d+) \+ (\d+)`).FindStringSubmatch(last.Content)
	switch {
	case last.Role == "tool":
		answer.Content = fmt.Sprintf("The answer is %s.", last.Content)
	case sum != nil:
		answer.ToolCalls = []chatTool{demoCall(len(messages), "add", fmt.Sprintf(`{"a": %s, "b": %s}`, sum[1], sum[2]))}
	case strings.Contains(last.Content, "submit"):
		answer.ToolCalls = []chatTool{demoCall(len(messages), "submit", `{"answer": "done"}`)}
	default:
		answer.Content = "I am a built-in model: ask me for a sum such as 2 + 3."
	}
	return answer
}

func demoCall(n int, name, arguments string) chatTool {
	call := chatTool{ID: fmt.Sprintf("call_%d", n), Type: "function"}
	call.Function.Name, call.Function.Arguments = name, arguments
	return call
}

// demoUsage counts words for tokens.
func demoUsage(prompt []chatMessage, answer chatMessage) chatUsage {
	var u chatUsage
	for _, m := range prompt {
		u.PromptTokens += demoTokens(m)
	}
	u.CompletionTokens = demoTokens(answer)
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

func demoTokens(m chatMessage) int64 {
	n := 3 + len(strings.Fields(m.Content)) // 3 for the message itself
	for _, call := range m.ToolCalls {
		n += 1 + len(strings.Fields(call.Function.Arguments))
	}
	return int64(n)
}

// demoStream writes an answer as server-sent events.
type demoStream struct {
	w    http.ResponseWriter
	ctx  context.Context // of the one request that it answers
	head map[string]any
}

func (s *demoStream) run(message chatMessage, finish string) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.delta(map[string]any{"role": "assistant", "content": ""}, nil)
	for _, word := range strings.SplitAfter(message.Content, " ") {
		if word != "" {
			s.delta(map[string]any{"content": word}, nil)
		}
	}
	for i, call := range message.ToolCalls {
		first, second := call, chatTool{Index: &i}
		first.Index = &i
		first.Function.Arguments, second.Function.Arguments = call.Function.Arguments[:1], call.Function.Arguments[1:]
		s.delta(map[string]any{"tool_calls": []chatTool{first}}, nil)
		s.delta(map[string]any{"tool_calls": []chatTool{second}}, nil)
	}
	s.delta(map[string]any{}, finish)
}

func (s *demoStream) delta(delta map[string]any, finish any) {
	s.event([]any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
}

func (s *demoStream) event(choices []any, usage any) {
	chunk := map[string]any{"choices": choices}
	maps.Copy(chunk, s.head)
	if usage != nil {
		chunk["usage"] = usage
	}
	text, err := json.Marshal(chunk)
	if err != nil {
		return
	}
	s.data(string(text))
	select {
	case <-time.After(demoPace):
	case <-s.ctx.Done():
	}
}

func (s *demoStream) data(text string) {
	fmt.Fprintf(s.w, "data: %s\n\n", text)
	_ = http.NewResponseController(s.w).Flush()
}

func demoError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": message, "type": "invalid_request_error", "param": nil, "code": nil,
	}})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
