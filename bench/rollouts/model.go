package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answerSize is about a thousand tokens of text.
const answerSize = 4 << 10

// model is the upstream. A request's model names the rollout that it is of.
type model struct {
	takes []time.Duration // by rollout

	mu   sync.Mutex
	took []time.Duration // by rollout: from the arrival of the call to the end of the answer
}

func newModel(takes []time.Duration) *model {
	return &model{takes: takes, took: make([]time.Duration, len(takes))}
}

func modelName(rollout int) string { return "rollout-" + strconv.Itoa(rollout) }

// ServeHTTP generates.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	var in struct {
		Model string `json:"model"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rollout, err := strconv.Atoi(strings.TrimPrefix(in.Model, "rollout-"))
	if err != nil || rollout < 0 || rollout >= len(m.takes) {
		http.Error(w, "no such rollout", http.StatusNotFound)
		return
	}
	timer := time.NewTimer(time.Until(start.Add(m.takes[rollout])))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-%d","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,`+
		`"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}}`,
		rollout, in.Model, strings.Repeat("word ", answerSize/5))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took[rollout] = time.Since(start)
}

// generation is how long the rollout's call took here.
func (m *model) generation(rollout int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.took[rollout]
}
