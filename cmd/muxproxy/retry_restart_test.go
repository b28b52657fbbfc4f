package main_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// A turn that was committed after its client had left answers the retry even if the daemon was killed in between: with what the
// harness would have seen, so without the usage that only muxproxy had asked for.
func TestRetryIsAnsweredByATurnFromBeforeTheDaemonWasKilled(t *testing.T) {
	t.Parallel()
	u := scripted.New()
	u.Func("slow", func(r *scripted.Request) scripted.Script {
		name := "openai/chat"
		if bytes.Contains(r.Body, []byte(`"include_usage":true`)) {
			name += "-usage"
		}
		script := scripted.SSE(scripted.Fixture(name + ".sse"))
		script.Delay = 300 * time.Millisecond
		return script
	})
	srv, err := scripted.Start(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	env := map[string]string{"MUXPROXY_UPSTREAM_URL": srv.URL, "MUXPROXY_STATE_DIR": t.TempDir()}
	d := startDaemon(t, env)
	s := d.register(t, `{"id":"r"}`)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		defer leave()
		_, _ = u.Await(ctx, 1)
	}()
	if _, err := tryChat(ctx, d, s, 0); err == nil {
		t.Fatal("the first try was answered")
	}
	until(t, "the turn is committed", func() bool { return d.session(t, "r").Turns == 1 })

	for try := 1; try <= 2; try++ {
		d.signal(t, syscall.SIGKILL)
		<-d.exited
		d = startDaemon(t, env)
		got, err := tryChat(t.Context(), d, s, try)
		want := scripted.Fixture("openai/chat.sse")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("try %d got %s, %v; want %s", try, got, err, want)
		}
		until(t, "the turn is delivered", func() bool { return retriedTrace(t, d, "r").undelivered() < 0 })
	}
	if n := len(u.Requests()); n != 1 {
		t.Errorf("the upstream got %d calls, want 1", n)
	}
	if trace := retriedTrace(t, d, "r"); len(trace.Turns) != 1 || len(trace.FailedCalls) != 0 {
		t.Errorf("the trace has %d turns and %d failed calls", len(trace.Turns), len(trace.FailedCalls))
	}
}

// tryChat makes a streamed call as a harness that has tried so often before, and returns its answer.
func tryChat(ctx context.Context, d *daemon, s session, count int) ([]byte, error) {
	const body = `{"model":"slow","messages":[{"role":"user","content":"hi"}],"stream":true}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Secret)
	request.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(count))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}
