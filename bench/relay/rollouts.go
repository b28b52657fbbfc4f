package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

const (
	chatPath      = "/v1/chat/completions"
	anyCredential = "bench-credential-of-some-length"
)

// register makes sessions, one for each worker. A target without any takes any
// credential.
func (p *process) register(ctx context.Context, count int, model string) (*rollouts, error) {
	r := &rollouts{process: p}
	if p.open != nil {
		var err error
		r.access, err = p.open(ctx, count, model)
		return r, err
	}
	if p.admin == "" {
		for range count {
			r.access = append(r.access, access{path: chatPath, secret: anyCredential})
		}
		return r, nil
	}
	template := "{}"
	if p.override {
		template = fmt.Sprintf(`{"model":%q}`, model)
	}
	for len(r.access) < count {
		var answer struct {
			Sessions []struct{ ID, Secret string }
		}
		body := fmt.Sprintf(`{"template":%s,"count":%d}`, template, min(batch, count-len(r.access)))
		if err := p.post(ctx, "/sessions/batch", body, &answer); err != nil {
			return nil, err
		}
		for _, s := range answer.Sessions {
			r.ids, r.access = append(r.ids, s.ID), append(r.access, access{path: chatPath, secret: s.Secret})
		}
	}
	return r, nil
}

// batch is how many sessions the admin API registers or ends at once.
const batch = 1000

// rollouts are the sessions of one measurement.
type rollouts struct {
	*process
	ids    []string
	access []access
}

// end gives the memory of their traces back.
func (r *rollouts) end(ctx context.Context) error {
	if r.process.end != nil {
		return r.process.end(ctx, r.access)
	}
	if r.admin == "" {
		return nil
	}
	for some := range slices.Chunk(r.ids, batch) {
		ids, err := json.Marshal(some)
		if err != nil {
			return err
		}
		if err := r.post(ctx, "/sessions/end?purge=true", fmt.Sprintf(`{"ids":%s}`, ids), nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) post(ctx context.Context, path, body string, answer any) error {
	return call(ctx, http.MethodPost, p.admin+path, body, answer)
}

// call makes a request of an API and reads the JSON of its answer.
func call(ctx context.Context, method, url, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: status %d: %s", method, url, response.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
