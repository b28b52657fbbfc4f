package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// sumMessage is a message as the harness and the model of these tests write it.
type sumMessage struct {
	Role       string    `json:"role"`
	Content    string    `json:"content"`
	ToolCallID string    `json:"tool_call_id,omitempty"`
	ToolCalls  []sumCall `json:"tool_calls,omitempty"`
}

type sumCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type sumRequest struct {
	Model    string            `json:"model"`
	Messages []sumMessage      `json:"messages"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	Stream   bool              `json:"stream,omitempty"`
}

const sumTool = `{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}`

var sum = regexp.MustCompile(`(\d+) \+ (\d+)`)

// sums answers as a model that calls a tool for a sum if it has one.
func sums(r *scripted.Request) scripted.Script {
	var request sumRequest
	if err := json.Unmarshal(r.Body, &request); err != nil || len(request.Messages) == 0 {
		return scripted.Error(http.StatusBadRequest, nil)
	}
	last := request.Messages[len(request.Messages)-1]
	var a, b int
	answer, finish := sumMessage{Role: "assistant"}, "stop"
	_, err := fmt.Sscanf(sum.FindString(last.Content), "%d + %d", &a, &b)
	switch {
	case last.Role == "tool":
		answer.Content = "The answer is " + last.Content + "."
	case err != nil:
		return scripted.Error(http.StatusBadRequest, nil)
	case len(request.Tools) > 0:
		call := sumCall{ID: fmt.Sprintf("call_%d", a), Type: "function"}
		call.Function.Name, call.Function.Arguments = "add", fmt.Sprintf(`{"a":%d,"b":%d}`, a, b)
		answer.ToolCalls, finish = []sumCall{call}, "tool_calls"
	default:
		answer.Content = fmt.Sprintf("The answer is %d.", a+b)
	}
	message, _ := json.Marshal(answer)
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":7,"total_tokens":%d}`, len(r.Body), len(r.Body)+7)
	if !request.Stream {
		return scripted.JSON(fmt.Appendf(nil, `{"id":"c","object":"chat.completion","model":"sums","choices":[{"index":0,"message":%s,"finish_reason":%q}],"usage":%s}`,
			message, finish, usage))
	}
	const chunk = `data: {"id":"c","object":"chat.completion.chunk","model":"sums","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}` + "\n\n"
	stream := fmt.Appendf(nil, chunk, message, "null")
	stream = fmt.Appendf(stream, chunk, "{}", `"`+finish+`"`)
	if bytes.Contains(r.Body, []byte(`"include_usage":true`)) {
		stream = fmt.Appendf(stream, `data: {"id":"c","object":"chat.completion.chunk","model":"sums","choices":[],"usage":%s}`+"\n\n", usage)
	}
	return scripted.SSE(append(stream, "data: [DONE]\n\n"...))
}

// sumUser is the simulated user, who wants one more added to each answer until the task's turns are over.
func sumUser(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Session  struct{ Metadata struct{ Turns int } }
		Messages []sumMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil || len(question.Messages) == 0 {
		http.Error(w, "no messages", http.StatusBadRequest)
		return
	}
	turns := 0
	for _, message := range question.Messages {
		if message.Role == "assistant" {
			turns++
		}
	}
	if turns == question.Session.Metadata.Turns {
		fmt.Fprint(w, `{"done":true}`)
		return
	}
	last := question.Messages[len(question.Messages)-1].Content
	answer := strings.TrimSuffix(strings.TrimPrefix(last, "The answer is "), ".")
	fmt.Fprintf(w, `{"messages":[{"role":"user","content":"What is %s + %d?"}],"done":false}`, answer, turns)
}
