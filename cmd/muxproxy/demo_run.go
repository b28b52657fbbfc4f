package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// demoRollout is one rollout of the demo, from both sides.
type demoRollout struct {
	id      string
	server  string
	harness harness
	want    string // the stop condition it is meant to meet, if any
	// As the daemon has it:
	outcome string
	usage   tokens // of all turns together
	trace   demoTrace
}

// registered is the part of the answer to POST /sessions that a client needs.
type registered struct {
	ID       string `json:"id"`
	Secret   string `json:"secret"`
	Server   string `json:"server"`
	Endpoint struct {
		OpenAIBaseURL string `json:"openai_base_url"`
	} `json:"endpoint"`
}

// runDemo registers rollouts and runs them at once. The last two are made to
// meet a stop condition: one the rule that a call of the tool submit ends it,
// one its limit of turns.
func runDemo(ctx context.Context, client *adminClient, rollouts, turns int) ([]*demoRollout, error) {
	all := make([]*demoRollout, rollouts)
	parts, ctx := errgroup.WithContext(ctx)
	parts.SetLimit(64)
	for i := range all {
		r := &demoRollout{id: fmt.Sprintf("demo-%d", i+1)}
		r.harness = harness{task: i + 1, stream: i%2 == 1, client: client.http}
		all[i] = r
		body := map[string]any{"id": r.id, "model": demoModelName, "labels": map[string]string{"demo": "yes"}}
		switch {
		case rollouts >= 3 && i == rollouts-2:
			r.want, r.harness.submit = "submitted", true
			body["stop_conditions"] = []any{map[string]any{"name": "submitted", "tool_call": "submit"}}
		case rollouts >= 3 && i == rollouts-1:
			r.want = "max_turns"
			body["limits"] = map[string]any{"max_turns": turns - 1}
		}
		parts.Go(func() error { return r.run(ctx, client, body, turns) })
	}
	return all, parts.Wait()
}

func (r *demoRollout) run(ctx context.Context, client *adminClient, body map[string]any, turns int) error {
	session, err := client.register(ctx, body)
	if err != nil {
		return err
	}
	r.server = session.Server
	r.harness.baseURL, r.harness.key = session.Endpoint.OpenAIBaseURL, session.Secret
	if r.harness.submit {
		turns += 2 // submitting takes one, and finding out that it is over another
	}
	if err := r.harness.run(ctx, turns); err != nil {
		return fmt.Errorf("rollout %s: %w", r.id, err)
	}
	return nil
}

// adminClient speaks the admin API, as a trainer would.
type adminClient struct {
	url  string
	http *http.Client
}

func (c *adminClient) register(ctx context.Context, body map[string]any) (registered, error) {
	var session registered
	return session, c.call(ctx, http.MethodPost, "/sessions", body, &session)
}

// get returns the text of an answer.
func (c *adminClient) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// call makes one call; in is sent and out is read as JSON unless nil.
func (c *adminClient) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	text, err := c.do(ctx, method, path, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return nil
}

// do makes one call and returns the answer's body.
func (c *adminClient) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	return text, nil
}
