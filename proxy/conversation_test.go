package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// say makes the upstream answer the model name with a text, as JSON or as a stream.
func (s *stack) say(model, text string) {
	s.model.Func(model, func(r *scripted.Request) scripted.Script {
		if strings.Contains(string(r.Body), streaming) {
			return scripted.SSE(fmt.Appendf(nil, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q}}]}\n\n"+
				"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", text))
		}
		return scripted.JSON(fmt.Appendf(nil, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}]}`, text))
	})
}

// converse sends messages as they are and gives the parent of the turn.
func (r *rollout) converse(model, extra string, messages ...string) string {
	r.t.Helper()
	if extra != "" {
		extra = "," + extra
	}
	got := r.do(r.request(http.MethodPost, chatPath, `{"model":"`+model+`","messages":[`+strings.Join(messages, ",")+`]`+extra+`}`))
	if got.StatusCode != 200 {
		r.t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	turns := r.turns()
	return parentOf(turns[len(turns)-1])
}

func parentOf(turn *registry.Turn) string {
	if turn.Parent == nil {
		return "none"
	}
	return fmt.Sprint(*turn.Parent)
}

func user(text string) string      { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }
func assistant(text string) string { return fmt.Sprintf(`{"role":"assistant","content":%q}`, text) }

// L34: a turn's parent is found however the harness writes the messages again.
func TestParentIsFoundAcrossReserialisedMessages(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		bubble(t, func(s *stack) {
			s.say("m", "Grüße <b>")
			for name, again := range map[string]string{
				"as it was":         `{"role":"assistant","content":"Grüße <b>"}`,
				"other key order":   `{ "content" : "Grüße <b>", "role" : "assistant" }`,
				"escapes":           `{"role":"assistant","content":"Gr\u00fc\u00dfe \u003cb\u003e"}`,
				"parts":             `{"role":"assistant","content":[{"type":"text","text":"Grüße "},{"type":"text","text":"<b>"}]}`,
				"more fields":       `{"role":"assistant","content":"Grüße <b>","refusal":null,"tool_calls":[],"annotations":[]}`,
				"without reasoning": `{"role":"assistant","content":"Grüße <b>","function_call":null,"audio":null}`,
			} {
				r := s.register(registry.Spec{})
				r.converse("m", extra, user("hi"))
				if parent := r.converse("m", extra, user("hi"), again, user("more")); parent != "0" {
					s.t.Errorf("%s: the parent is %s, want 0", name, parent)
				}
			}
			for name, again := range map[string]string{
				"other text": assistant("Grüße"), "other role": user("Grüße <b>"), "nothing": `{"role":"assistant","content":null}`,
			} {
				r := s.register(registry.Spec{})
				r.converse("m", extra, user("hi"))
				if parent := r.converse("m", extra, user("hi"), again, user("more")); parent != "none" {
					s.t.Errorf("%s: the parent is %s, want none", name, parent)
				}
			}
		})
	}
}

// L34: tool calls are compared by id, name and the value of their arguments.
func TestParentIsFoundAcrossReserialisedToolCalls(t *testing.T) {
	const (
		call0 = `{"id":"call_Wq3ZtB8cKp1LrVx5YnGd2SfA","type":"function","function":{"name":"get_weather","arguments":"{ \"city\" : \"Paris\" }"}}`
		call1 = `{"function":{"arguments":"{\"city\":\"K\\u00f8benhavn\"}","name":"get_weather"},"type":"function","id":"call_Hj6MvD4eRs9TuXy2ZaBc7QwE"}`
		call2 = `{"id":"call_Nk0PxF2gTv7WzAb4CdEf8RyU","type":"function","function":{"name":"now","arguments":"{}"}}`
	)
	result := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"20"}` }
	for _, extra := range []string{"", streaming} {
		bubble(t, func(s *stack) {
			for name, test := range map[string]struct{ calls, parent string }{
				"the same":        {call0 + "," + call1 + "," + call2, "0"},
				"other arguments": {strings.ReplaceAll(call0, "Paris", "London") + "," + call1 + "," + call2, "none"},
				"other id":        {strings.ReplaceAll(call0, "call_W", "call_X") + "," + call1 + "," + call2, "none"},
				"one less":        {call0 + "," + call1, "none"},
			} {
				r := s.register(registry.Spec{})
				r.converse("openai-tools", extra, user("weather?"))
				parent := r.converse("openai", extra, user("weather?"),
					`{"role":"assistant","content":null,"tool_calls":[`+test.calls+`]}`, result("call_Wq3ZtB8cKp1LrVx5YnGd2SfA"))
				if parent != test.parent {
					s.t.Errorf("%s: the parent is %s, want %s", name, parent, test.parent)
				}
			}
		})
	}
}

// L34: sub-agents, retries of a point in the conversation and compaction show as branches.
func TestConversationBranches(t *testing.T) {
	bubble(t, func(s *stack) {
		s.say("a", "A")
		s.say("b", "B")
		r := s.register(registry.Spec{})
		for i, step := range []struct {
			model    string
			messages []string
			parent   string
		}{
			{"a", []string{user("1")}, "none"},
			{"a", []string{user("1"), assistant("A"), user("2")}, "0"},
			{"b", []string{user("sub-agent")}, "none"},
			{"a", []string{user("1"), assistant("A"), user("2"), assistant("A"), user("3")}, "1"},
			{"b", []string{user("sub-agent"), assistant("B"), user("on")}, "2"},
			{"b", []string{user("1"), assistant("A"), user("2 again")}, "0"},
			{"a", []string{user("a summary of it all")}, "none"},
			{"a", []string{user("a summary of it all"), assistant("A"), user("4")}, "6"},
			{"a", []string{user("1")}, "none"}, // the same again
			{"a", []string{user("1"), assistant("A"), user("5")}, "8"},
			// two assistant messages in a row, and one that was appended to
			{"a", []string{user("1"), assistant("A"), user("5"), assistant("A"), assistant("prefill")}, "9"},
		} {
			if parent := r.converse(step.model, "", step.messages...); parent != step.parent {
				s.t.Errorf("turn %d continues %s, want %s", i, parent, step.parent)
			}
		}
	})
}

// L34: a turn that answers with several choices is continued from any of them.
func TestAnyChoiceCanBeContinued(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("two", scripted.JSON([]byte(`{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"A"}},`+
			`{"index":1,"finish_reason":"stop","message":{"role":"assistant","content":"B"}}]}`)))
		r := s.register(registry.Spec{})
		r.converse("two", `"n":2`, user("1"))
		for _, choice := range []string{"A", "B"} {
			if parent := r.converse("two", "", user("1"), assistant(choice), user("2")); parent != "0" {
				s.t.Errorf("choice %s continues %s, want 0", choice, parent)
			}
		}
	})
}

// L34: parallel chains in one session do not mix.
func TestParallelSubAgentsKeepTheirOwnChains(t *testing.T) {
	s := newStack(t)
	const agents, depth = 8, 12
	for a := range agents {
		s.say(fmt.Sprintf("agent-%d", a), fmt.Sprintf("I am %d", a))
	}
	r := s.register(registry.Spec{})
	var running sync.WaitGroup
	for a := range agents {
		running.Go(func() {
			var messages []string
			for d := range depth {
				messages = append(messages, user(fmt.Sprintf("task of %d, step %d", a, d)))
				body := fmt.Sprintf(`{"model":"agent-%d","messages":[%s]}`, a, strings.Join(messages, ","))
				if got := r.do(r.request(http.MethodPost, chatPath, body)); got.StatusCode != 200 {
					t.Errorf("got %d %s", got.StatusCode, got.body)
				}
				messages = append(messages, assistant(fmt.Sprintf("I am %d", a)))
			}
		})
	}
	running.Wait()
	turns := r.turns()
	if len(turns) != agents*depth {
		t.Fatalf("the trace has %d turns, want %d", len(turns), agents*depth)
	}
	roots := 0
	for _, turn := range turns {
		if turn.Parent == nil {
			roots++
			continue
		}
		parent := turns[*turn.Parent]
		if parent.Model != turn.Model || len(parent.Request()) >= len(turn.Request()) {
			t.Errorf("turn %d of %s continues turn %d of %s", turn.Index, turn.Model, parent.Index, parent.Model)
		}
	}
	if roots != agents {
		t.Errorf("%d turns have no parent, want %d", roots, agents)
	}
}

// A failed call is nobody's parent.
func TestFailedCallIsNotContinued(t *testing.T) {
	bubble(t, func(s *stack) {
		s.say("a", "Hello")
		r := s.register(registry.Spec{})
		r.chat("stream-abort", streaming)
		if parent := r.converse("a", "", user("hi"), assistant("Hello"), user("more")); parent != "none" {
			s.t.Errorf("the parent is %s, want none", parent)
		}
	})
}

// A fork of a tool-call answer may carry the harness's own field for the model:
// a session with a model of its own records what was sent.
func TestOverriddenRequestKeepsItsConversation(t *testing.T) {
	bubble(t, func(s *stack) {
		s.say("ours", "A")
		r := s.register(registry.Spec{Model: "ours"})
		r.converse("theirs", "", user("1"))
		if parent := r.converse("theirs", "", user("1"), assistant("A"), user("2")); parent != "0" {
			s.t.Errorf("the parent is %s, want 0", parent)
		}
		if turn := r.turns()[1]; turn.Model != "ours" || !strings.HasPrefix(string(turn.Request()), `{"model":"ours",`) {
			s.t.Errorf("turn of %s: %s", turn.Model, turn.Request())
		}
	})
}
