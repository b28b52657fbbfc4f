package proxy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

func itoa(n int) string { return strconv.Itoa(n) }

// scriptWith is an answer with these headers.
func scriptWith(h http.Header, body string) scripted.Script {
	return scripted.Script{Header: h, Body: []byte(body)}
}

// hanging never answers.
func hanging() scripted.Script { return scripted.Script{NoHeader: true, End: scripted.Hang} }

// abandonable gives a request whose client can leave.
func abandonable(req *http.Request) (*http.Request, context.CancelFunc) {
	ctx, leave := context.WithCancel(req.Context())
	return req.WithContext(ctx), leave
}

// leaveOnce sends a request whose client leaves when the returned function is
// called, which waits for that. It is for bubbles.
func (r *rollout) leaveOnce(req *http.Request, leave context.CancelFunc) (gone func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := r.client.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	synctest.Wait()
	return func() {
		leave()
		<-done
	}
}

// pass lets time pass. It is for bubbles.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// run lets the registry's time pass until stop is called.
func (s *stack) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.registry.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// sampling reads a session's sampling.
func sampling(object string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		panic(err)
	}
	return m
}

// answering answers a chat call, with a stream when that is asked for.
func answering(r *scripted.Request) scripted.Script {
	if strings.Contains(string(r.Body), streaming) {
		return scripted.SSE(scripted.Fixture("openai/chat-usage.sse"))
	}
	return scripted.JSON(scripted.Fixture("openai/chat.json"))
}
