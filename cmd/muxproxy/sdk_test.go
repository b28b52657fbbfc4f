package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// The official SDKs against the real daemon, in front of a scripted upstream. testdata/sdk/README.md says what the
// programs are given and what they print.

func TestOpenAIPythonSDK(t *testing.T) {
	t.Parallel()
	python := os.Getenv("MUXPROXY_TEST_PYTHON") //nolint:forbidigo // the Makefile says where the SDK is
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	dir := filepath.Join("testdata", "sdk", "python")
	runChecks(t, dir, need(t, python), "-B", "checks.py")
}

func TestOpenAIJavaScriptSDK(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("MUXPROXY_TEST_NODE_DIR") //nolint:forbidigo // as above
	if dir == "" {
		dir = filepath.Join("testdata", "sdk", "javascript")
	}
	need(t, filepath.Join(dir, "node_modules", "openai"))
	runChecks(t, dir, "node", "checks.mjs")
}

func TestOpenAIGoSDK(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "sdk", "go")
	runChecks(t, dir, need(t, filepath.Join(dir, "checks")))
}

// need returns the absolute form of a path that must exist.
func need(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make sdk-setup` first", err)
	}
	return path
}

// sdkStage is a daemon in front of a scripted upstream, with the sessions that the checks of one SDK need.
type sdkStage struct {
	upstream *scripted.Upstream
	daemon   *daemon
	active   session
	keys     map[string]string // ENDED, STOPPED, ONE_TURN, CONTEXT, UNKNOWN
}

const upstreamKey = "sk-upstream-credential"

func newSDKStage(t *testing.T) *sdkStage {
	t.Helper()
	u := scripted.New()
	slow := scripted.SSE(scripted.Fixture("framing/ids.sse"))
	slow.Gap = 400 * time.Millisecond
	u.Script("stream-ids-slow", slow)
	srv, err := scripted.Start(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	d := startDaemon(t, map[string]string{
		"MUXPROXY_UPSTREAM_URL":     srv.URL,
		"MUXPROXY_UPSTREAM_API_KEY": upstreamKey,
		"MUXPROXY_KEEPALIVE":        "100ms",
	})
	s := &sdkStage{upstream: u, daemon: d, active: d.register(t, `{"id":"active"}`)}
	s.keys = map[string]string{
		"ENDED":    d.register(t, `{"id":"ended"}`).Secret,
		"STOPPED":  d.register(t, `{"id":"stopped"}`).Secret,
		"ONE_TURN": d.register(t, `{"limits":{"max_turns":1}}`).Secret,
		"CONTEXT":  d.register(t, `{}`).Secret,
		"UNKNOWN":  "mxp_ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	}
	s.admin(t, http.MethodDelete, "/sessions/ended", "")
	s.admin(t, http.MethodPost, "/sessions/stopped/stop", "{}")
	return s
}

// admin makes a call of the admin API and returns the body of its answer, which must be a success.
func (s *sdkStage) admin(t *testing.T, method, path, body string) []byte {
	t.Helper()
	status, answer := s.daemon.do(t, method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

// runChecks runs a program of testdata/sdk and reports each of its checks as a subtest.
func runChecks(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	s := newSDKStage(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "OPENAI_BASE_URL="+s.active.BaseURL, "OPENAI_API_KEY="+s.active.Secret)
	for key, secret := range s.keys {
		cmd.Env = append(cmd.Env, "CHECK_KEY_"+key+"="+secret)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	checks := 0
	lines := bufio.NewScanner(bytes.NewReader(stdout))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Check, Error string
			OK           bool
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Check == "" {
			t.Log(lines.Text())
			continue
		}
		checks++
		t.Run(line.Check, func(t *testing.T) {
			if !line.OK {
				t.Error(line.Error)
			}
		})
	}
	if err != nil || checks == 0 {
		t.Errorf("%d checks, %v: %s", checks, err, stderr.Bytes())
	}
	s.verify(t)
}

// verify checks what only the upstream and the admin API can know after an SDK's checks.
func (s *sdkStage) verify(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	calls := map[string]int{}
	large := false
	for _, r := range s.upstream.Requests() {
		calls[r.Script]++
		if bytes.Contains(r.Head, []byte("mxp_")) {
			t.Errorf("a session's secret went upstream: %s", r.Head)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer "+upstreamKey {
			t.Errorf("%s %s went up with the credential %q", r.Method, r.Path, got)
		}
		large = large || len(r.Body) > 8<<20 && bytes.Contains(r.Body, []byte(strings.Repeat("0123456789abcdef", 1<<19)))
		if r.Script != "silent" && r.Script != "stream-hang" {
			continue
		}
		select {
		case <-r.Done():
			if _, canceled := r.Canceled(); !canceled {
				t.Errorf("%s was not canceled", r.Script)
			}
		case <-ctx.Done():
			t.Errorf("%s still runs after its client has left", r.Script)
		}
	}
	if n := calls["429-once"]; n != 2 {
		t.Errorf("the call that is refused once came up %d times; want 2", n)
	}
	if calls["silent"] == 0 || calls["stream-hang"] == 0 || !large {
		t.Errorf("calls by script: %v; large body: %v", calls, large)
	}
	var summary struct {
		State           string
		Turns, Inflight int
	}
	s.settle(ctx, t)
	if err := json.Unmarshal(s.admin(t, http.MethodGet, "/sessions/active", ""), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.State != "active" || summary.Turns < 60 || summary.Inflight != 0 {
		t.Errorf("the session is left as %+v", summary)
	}
}

// settle waits until the active session has no call in flight: those whose clients have left may be waiting for a retry.
func (s *sdkStage) settle(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		var summary struct{ Inflight int }
		if err := json.Unmarshal(s.admin(t, http.MethodGet, "/sessions/active", ""), &summary); err != nil {
			t.Fatal(err)
		}
		if summary.Inflight == 0 {
			return
		}
	}
}
