package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// rollouts is how many run at once, which is also how many sessions a pooled server takes.
const rollouts = 32

// What the change was verified with that muxproxy stands for: rollouts at once, each with a server of its own or all on one, with one
// turn, a tool that the harness runs or a simulated user, directly and through a real frp server. Every reward is 1, nothing fails, and every trace is whole.

func TestRolloutsAreRewardedWithServersOfTheirOwn(t *testing.T) {
	t.Parallel()
	verifyRollouts(t, 1, task{})
}

func TestPooledRolloutsOfOneTurnAreRewarded(t *testing.T) {
	t.Parallel()
	verifyRollouts(t, rollouts, task{})
}

func TestPooledRolloutsWithAToolAreRewarded(t *testing.T) {
	t.Parallel()
	verifyRollouts(t, rollouts, task{tool: true})
}

func TestPooledRolloutsWithASimulatedUserAreRewarded(t *testing.T) {
	t.Parallel()
	verifyRollouts(t, rollouts, task{user: true})
}

// task is a sum that a rollout is asked for.
type task struct {
	tool   bool // the model is given a tool for it, which the harness runs
	user   bool // a simulated user asks on, inside the harness's one request
	stream bool
	a, b   int
}

// calls is how many requests the harness makes.
func (k task) calls() int {
	if k.tool {
		return 2
	}
	return 1
}

// turns is how many of them and of the user's make turns.
func (k task) turns() int {
	if k.user {
		return 3 + k.a%3
	}
	return k.calls()
}

func (k task) want() string {
	sum := k.a + k.b
	if k.user {
		for more := 1; more < k.turns(); more++ {
			sum += more
		}
	}
	return fmt.Sprintf("The answer is %d.", sum)
}

func verifyRollouts(t *testing.T, multiplex int, kind task) {
	t.Helper()
	for name, env := range ways(t, multiplex) {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, env)
			user := httptest.NewServer(http.HandlerFunc(sumUser))
			defer user.Close()
			all := make([]sumRollout, rollouts)
			servers := make([]string, rollouts)
			together(func(i int) {
				k := kind
				k.a, k.b, k.stream = i, 1000*i+7, i%2 == 1
				spec := fmt.Sprintf(`{"id":"rollout-%d","limits":{"max_turns":8},"metadata":{"turns":%d}`, i, k.turns())
				if k.user {
					spec += fmt.Sprintf(`,"user":{"url":%q}`, user.URL)
				}
				all[i] = sumRollout{task: k, session: d.register(t, spec+"}")}
				servers[i] = d.session(t, all[i].session.ID).Server
			})
			slices.Sort(servers)
			if used := slices.Compact(servers); len(used) != rollouts/multiplex {
				t.Errorf("the rollouts are on the servers %v, want %d", used, rollouts/multiplex)
			}
			together(func(i int) { all[i].run(t, d) })
		})
	}
}

// together does something for each rollout at once.
func together(do func(i int)) {
	var running sync.WaitGroup
	for i := range rollouts {
		running.Go(func() { do(i) })
	}
	running.Wait()
}

// sumRollout is one run of a harness on a task.
type sumRollout struct {
	task    task
	session session
}

// run is the harness's whole life and the scoring after it.
func (r sumRollout) run(t *testing.T, d *daemon) {
	t.Helper()
	request := sumRequest{Model: "sums", Stream: r.task.stream, Messages: []sumMessage{
		{Role: "system", Content: "You are good at sums. " + strings.Repeat("Think step by step. ", 40)},
		{Role: "user", Content: fmt.Sprintf("What is %d + %d?", r.task.a, r.task.b)},
	}}
	if r.task.tool {
		request.Tools = []json.RawMessage{json.RawMessage(sumTool)}
	}
	var sent [][]byte
	for range r.task.calls() {
		body, err := json.Marshal(request)
		if err != nil {
			t.Error(err)
			return
		}
		sent = append(sent, body)
		answer, err := r.ask(body)
		if err != nil {
			t.Errorf("%s: %v", r.session.ID, err)
			return
		}
		request.Messages = append(request.Messages, answer)
		for _, call := range answer.ToolCalls {
			var of struct{ A, B int }
			if err := json.Unmarshal([]byte(call.Function.Arguments), &of); err != nil {
				t.Errorf("%s: %v", r.session.ID, err)
			}
			request.Messages = append(request.Messages, sumMessage{Role: "tool", ToolCallID: call.ID, Content: fmt.Sprint(of.A + of.B)})
		}
	}
	r.score(t, d, sent)
}

// ask makes one model call.
func (r sumRollout) ask(body []byte) (sumMessage, error) {
	request, err := http.NewRequest(http.MethodPost, r.session.BaseURL+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return sumMessage{}, err
	}
	request.Header.Set("Authorization", "Bearer "+r.session.Secret)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sumMessage{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return sumMessage{}, fmt.Errorf("status %d, %s: %w", response.StatusCode, text, err)
	}
	if r.task.stream {
		return messageOfStream(text)
	}
	var answer struct {
		Choices []struct{ Message sumMessage }
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Choices) != 1 {
		return sumMessage{}, fmt.Errorf("got %s: %w", text, err)
	}
	return answer.Choices[0].Message, nil
}

// messageOfStream puts a stream together.
func messageOfStream(text []byte) (sumMessage, error) {
	stream, whole := bytes.CutSuffix(text, []byte("data: [DONE]\n\n"))
	if !whole {
		return sumMessage{}, fmt.Errorf("a stream without its end: %s", text)
	}
	message := sumMessage{Role: "assistant"}
	for event := range bytes.SplitSeq(stream, []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok {
			continue // a comment
		}
		var chunk struct {
			Choices []struct{ Delta sumMessage }
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return sumMessage{}, fmt.Errorf("chunk %s: %w", data, err)
		}
		for _, choice := range chunk.Choices {
			message.Content += choice.Delta.Content
			message.ToolCalls = append(message.ToolCalls, choice.Delta.ToolCalls...)
		}
	}
	return message, nil
}

// sumTrace is what scoring reads.
type sumTrace struct {
	Session struct {
		State    string
		Turns    int
		Inflight int
	}
	Turns []struct {
		Index    int
		Parent   *int
		Request  json.RawMessage
		Response struct {
			Choices []struct{ Message sumMessage }
		}
		Usage *struct {
			InputTokens int `json:"input_tokens"`
		}
		Delivered *bool
	}
	FailedCalls []json.RawMessage `json:"failed_calls"`
}

// score gives the reward from the trace, which must be whole at once: nobody waits for it.
func (r sumRollout) score(t *testing.T, d *daemon, sent [][]byte) {
	t.Helper()
	status, text := d.do(t, http.MethodDelete, "/sessions/"+r.session.ID+"?trace=true", "")
	var trace sumTrace
	if err := json.Unmarshal(text, &trace); err != nil || status != http.StatusOK {
		t.Errorf("%s: its end is %d %s, %v", r.session.ID, status, text, err)
		return
	}
	want := r.task.turns()
	if len(trace.Turns) != want || trace.Session.Turns != want || len(trace.FailedCalls) != 0 || trace.Session.State != "ended" {
		t.Errorf("%s: the trace has %d turns and %d failed calls, want %d and none: %+v", r.session.ID, len(trace.Turns), len(trace.FailedCalls), want, trace.Session)
		return
	}
	for i, turn := range trace.Turns {
		_, body := d.get(t, fmt.Sprintf("/sessions/%s/turns/%d/request", r.session.ID, i))
		_, own, _ := bytes.Cut(sent[min(i, len(sent)-1)], []byte(`"messages":`))
		own = own[:bytes.LastIndex(own, []byte("]"))] // what a simulated user says comes after
		if !bytes.Contains(body, own) || turn.Index != i || turn.Usage == nil || turn.Usage.InputTokens == 0 {
			t.Errorf("%s: turn %d is %+v, its request %s", r.session.ID, i, turn, body)
		}
		if isChild := turn.Parent != nil && *turn.Parent == i-1; isChild != (i > 0) {
			t.Errorf("%s: turn %d continues %v", r.session.ID, i, turn.Parent)
		}
		if turn.Delivered == nil || !*turn.Delivered {
			t.Errorf("%s: delivered of turn %d is %v", r.session.ID, i, turn.Delivered)
		}
	}
	last := trace.Turns[want-1].Response
	reward := 0.0
	if len(last.Choices) == 1 && last.Choices[0].Message.Content == r.task.want() {
		reward = 1
	}
	if reward != 1 {
		t.Errorf("%s: reward %v for %+v, want %q", r.session.ID, reward, last, r.task.want())
	}
}

// ways are the configurations in which rollouts are verified: directly, and through tunnels.
func ways(t *testing.T, multiplex int) map[string]map[string]string {
	t.Helper()
	u := scripted.New()
	u.Func("sums", sums)
	srv, err := scripted.Start(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	more := map[string]string{"MUXPROXY_UPSTREAM_URL": srv.URL, "MUXPROXY_UPSTREAM_API_KEY": upstreamKey, "MUXPROXY_MULTIPLEX": strconv.Itoa(multiplex)}
	direct := tunnelEnv(t, "command", more)
	direct["MUXPROXY_TUNNEL_COMMAND"] = `["sh","-c","echo http://{addr}; exec sleep 3600"]`
	direct["MUXPROXY_TUNNEL_COMMAND_URL_REGEXP"] = `http://\S+`
	return map[string]map[string]string{
		"directly":    direct,
		"through frp": frpEnv(t, frpstest.New(t, frpstest.Options{Token: "t0ken"}), srv.URL, more),
	}
}
