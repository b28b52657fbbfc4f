package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// The models of the upstream, by what they answer with.
const (
	modelEvents = "events" // the time, again and again, until the client leaves
	modelSmall  = "small"
	modelBulk   = "bulk"
)

// upstream is a model API in this process.
type upstream struct {
	interval time.Duration // between events
	bulk     string        // the text of a large answer
}

func startUpstream(ctx context.Context, interval time.Duration, bulkBytes int) (*rig.Server, error) {
	return rig.Serve(ctx, &http.Server{Handler: &upstream{interval, text(bulkBytes)}, ReadHeaderTimeout: 10 * time.Second})
}

// ServeHTTP answers as the model says.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct{ Model string }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &request) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	switch request.Model {
	case modelEvents:
		u.stream(w, r)
	case modelBulk:
		complete(w, u.bulk)
	default:
		complete(w, "hello")
	}
}

func complete(w http.ResponseWriter, content string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, content)
}

// timePrefix is what the time of an event's sending follows.
const timePrefix = `"content":"`

func (u *upstream) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(u.interval)
	defer ticker.Stop()
	for {
		_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{%s%d"},"finish_reason":null}]}`+"\n\n", timePrefix, time.Now().UnixNano())
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// text is so many bytes of words.
func text(size int) string {
	const words = "the quick brown fox jumps over the lazy dog "
	return strings.Repeat(words, size/len(words)+1)[:size]
}
