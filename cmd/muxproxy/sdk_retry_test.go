package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// What official SDKs do by themselves when a connection is lost makes no second generation and no second turn.

func TestPythonSDKsRetryWhatIsLost(t *testing.T) {
	t.Parallel()
	python := os.Getenv("MUXPROXY_TEST_PYTHON") //nolint:forbidigo // the Makefile says where the SDK is
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	runRetries(t, filepath.Join("testdata", "sdk", "python"), need(t, python), "-B", "retries.py")
}

func TestJavaScriptSDKsRetryWhatIsLost(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("MUXPROXY_TEST_NODE_DIR") //nolint:forbidigo // as above
	if dir == "" {
		dir = filepath.Join("testdata", "sdk", "javascript")
	}
	need(t, filepath.Join(dir, "node_modules", "openai"))
	runRetries(t, dir, "node", "retries.mjs")
}

// lossy stands between a harness and muxproxy, as a tunnel does, and loses first tries: with X-Lose "answer" once all of the answer has
// come, with "call" once the upstream has the call.
type lossy struct {
	to       *httputil.ReverseProxy
	upstream *scripted.Upstream
}

func newLossy(t *testing.T, target string, u *scripted.Upstream) *httptest.Server {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	l := &lossy{upstream: u, to: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1, Transport: transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}}
	server := httptest.NewServer(l)
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return server
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Read to its end first: net/http closes it when the answer begins, which a transport that still looks for the end takes amiss.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Header.Get("X-Stainless-Retry-Count") != "0" {
		l.to.ServeHTTP(w, r)
		return
	}
	if r.Header.Get("X-Lose") == "answer" {
		l.to.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	ctx, leave := context.WithCancel(r.Context())
	go func() {
		defer leave()
		l.await(ctx, body)
	}()
	l.to.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	panic(http.ErrAbortHandler)
}

// await waits until the upstream has a call with what is asked in body.
func (l *lossy) await(ctx context.Context, body []byte) {
	_, name, _ := bytes.Cut(body, []byte("_lost"))
	name = body[:len(body)-len(name)]
	name = name[bytes.LastIndexByte(name, '"'):]
	for n := 1; ; n++ {
		requests, err := l.upstream.Await(ctx, n)
		if err != nil {
			return
		}
		for _, r := range requests {
			if bytes.Contains(r.Body, name) {
				return
			}
		}
	}
}

// runRetries runs a program whose every first try is lost.
func runRetries(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	u := scripted.New()
	u.Func("slow", slowly)
	srv, err := scripted.Start(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": srv.URL, "MUXPROXY_UPSTREAM_API_KEY": upstreamKey, "MUXPROXY_RETRY_GRACE": "20s"})
	s := d.register(t, `{"id":"active"}`)
	base := strings.TrimSuffix(s.BaseURL, "/v1")
	tunnel := newLossy(t, base, u)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "OPENAI_BASE_URL="+tunnel.URL+"/v1", "OPENAI_API_KEY="+s.Secret,
		"ANTHROPIC_BASE_URL="+tunnel.URL, "ANTHROPIC_API_KEY="+s.Secret, "ANTHROPIC_AUTH_TOKEN=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	checks := 0
	for line := range bytes.Lines(stdout) {
		var check struct {
			Check, Error string
			OK           bool
		}
		if json.Unmarshal(line, &check) != nil || check.Check == "" {
			t.Logf("%s", line)
			continue
		}
		checks++
		if !check.OK {
			t.Errorf("%s: %s", check.Check, check.Error)
		}
	}
	if err != nil || checks == 0 {
		t.Errorf("%d checks, %v: %s", checks, err, stderr.Bytes())
	}
	verifyRetries(t, d, u, checks)
}

// slowly answers by the path as the OpenAI and the Anthropic API do, when their clients have long tried again.
func slowly(r *scripted.Request) scripted.Script {
	name := "openai/chat"
	switch {
	case strings.HasSuffix(r.Path, "/messages"):
		name = "anthropic/message"
	case strings.HasSuffix(r.Path, "/responses"):
		name = "openai/responses"
	}
	var wish struct{ Stream bool }
	script := scripted.JSON(scripted.Fixture(name + ".json"))
	if json.Unmarshal(r.Body, &wish) == nil && wish.Stream {
		script = scripted.SSE(scripted.Fixture(name + ".sse"))
		script.Gap = 10 * time.Millisecond
	}
	script.Delay = 1500 * time.Millisecond
	return script
}

type retried struct {
	Turns       []struct{ Delivered *bool }
	FailedCalls []json.RawMessage `json:"failed_calls"`
}

func retriedTrace(t *testing.T, d *daemon, id string) (trace retried) {
	t.Helper()
	_, answer := d.get(t, "/sessions/"+id+"/trace")
	if err := json.Unmarshal(answer, &trace); err != nil {
		t.Fatal(err)
	}
	return trace
}

// undelivered is the first turn that was not delivered, -1 if there is none.
func (r retried) undelivered() int {
	for i, turn := range r.Turns {
		if turn.Delivered == nil || !*turn.Delivered {
			return i
		}
	}
	return -1
}

func verifyRetries(t *testing.T, d *daemon, u *scripted.Upstream, checks int) {
	t.Helper()
	if n := len(u.Requests()); n != checks {
		t.Errorf("the upstream got %d calls, want %d", n, checks)
	}
	trace := retriedTrace(t, d, "active")
	// A client has its last byte a moment before it is known that it was written.
	for deadline := time.Now().Add(patience); trace.undelivered() >= 0 && time.Now().Before(deadline); {
		trace = retriedTrace(t, d, "active")
	}
	if len(trace.Turns) != checks || len(trace.FailedCalls) != 0 {
		t.Errorf("the trace has %d turns and %d failed calls, want %d and none", len(trace.Turns), len(trace.FailedCalls), checks)
	}
	if i := trace.undelivered(); i >= 0 {
		t.Errorf("turn %d was not delivered", i)
	}
	// Which of the two it is, is for the SDK's pause and the upstream's to decide.
	_, exposed := d.get(t, "/metrics")
	answered := 0
	for _, kind := range []string{"joined", "replayed"} {
		_, text, _ := bytes.Cut(exposed, fmt.Appendf(nil, "muxproxy_replays_total{kind=%q} ", kind))
		text, _, _ = bytes.Cut(text, []byte("\n"))
		n, err := strconv.Atoi(string(text))
		if err != nil || n == 0 {
			t.Errorf("no retry was %s: %q", kind, text)
		}
		answered += n
	}
	if answered != checks {
		t.Errorf("%d retries were joined or replayed, want %d", answered, checks)
	}
}
