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

func TestAnthropicPythonSDK(t *testing.T) {
	t.Parallel()
	python := os.Getenv("MUXPROXY_TEST_PYTHON") //nolint:forbidigo // the Makefile says where the SDK is
	if python == "" {
		python = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	dir := filepath.Join("testdata", "sdk", "python")
	runAnthropicChecks(t, dir, need(t, python), "-B", "anthropic_checks.py")
}

func TestAnthropicJavaScriptSDK(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("MUXPROXY_TEST_NODE_DIR") //nolint:forbidigo // as above
	if dir == "" {
		dir = filepath.Join("testdata", "sdk", "javascript")
	}
	need(t, filepath.Join(dir, "node_modules", "@anthropic-ai", "sdk"))
	runAnthropicChecks(t, dir, "node", "anthropic_checks.mjs")
}

// newAnthropicStage is newSDKStage with an upstream that speaks the Messages API.
func newAnthropicStage(t *testing.T) *sdkStage {
	t.Helper()
	u := scripted.New()
	u.AddAnthropic()
	slow := scripted.SSE(scripted.Fixture("anthropic/message.sse"))
	slow.Gap = 250 * time.Millisecond
	u.Script("anthropic-slow", slow)
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
		"MUXPROXY_UPSTREAM_STYLE":   "anthropic",
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

// runAnthropicChecks runs a program of testdata/sdk and reports each of its checks as a subtest.
func runAnthropicChecks(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	s := newAnthropicStage(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	base := strings.TrimSuffix(s.active.BaseURL, "/v1")
	cmd.Env = append(cmd.Environ(), "ANTHROPIC_BASE_URL="+base, "ANTHROPIC_API_KEY="+s.active.Secret, "ANTHROPIC_AUTH_TOKEN=")
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
	s.verifyAnthropic(t)
}

// verifyAnthropic checks what only the upstream and the admin API can know after an SDK's checks.
func (s *sdkStage) verifyAnthropic(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	calls := map[string]int{}
	beta := false
	for _, r := range s.upstream.Requests() {
		calls[r.Script]++
		if bytes.Contains(r.Head, []byte("mxp_")) {
			t.Errorf("a session's secret went upstream: %s", r.Head)
		}
		if key, bearer := r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"); key != upstreamKey || bearer != "" {
			t.Errorf("%s %s went up with the credentials %q and %q", r.Method, r.Path, key, bearer)
		}
		if r.Header.Get("Anthropic-Version") == "" {
			t.Errorf("%s %s went up without the version of the API", r.Method, r.Path)
		}
		beta = beta || strings.Contains(r.Header.Get("Anthropic-Beta"), "context-1m-2025-08-07")
		if r.Script != "silent" && r.Script != "anthropic-hang" {
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
	if n := calls["anthropic-429-once"]; n != 2 {
		t.Errorf("the call that is refused once came up %d times; want 2", n)
	}
	if calls["silent"] == 0 || calls["anthropic-hang"] == 0 || !beta {
		t.Errorf("calls by script: %v; beta header: %v", calls, beta)
	}
	s.settle(ctx, t)
	s.verifyAnthropicTrace(t)
}

// verifyAnthropicTrace checks that the active session has its turns, and that those of tools continue each other.
func (s *sdkStage) verifyAnthropicTrace(t *testing.T) {
	t.Helper()
	var trace struct {
		Session struct {
			State    string
			Inflight int
		}
		Turns []struct {
			Dialect  string
			Parent   *int
			Response struct {
				Content []struct{ Type string }
			}
		}
	}
	answer := s.admin(t, http.MethodGet, "/sessions/active/trace", "")
	if err := json.Unmarshal(answer, &trace); err != nil {
		t.Fatal(err)
	}
	if trace.Session.State != "active" || trace.Session.Inflight != 0 {
		t.Errorf("the session is left as %+v", trace.Session)
	}
	children := 0
	for i, turn := range trace.Turns {
		if turn.Dialect != "messages" || len(turn.Response.Content) == 0 {
			t.Errorf("turn %d is of dialect %q with the content %v", i, turn.Dialect, turn.Response.Content)
		}
		if turn.Parent != nil {
			children++
		}
	}
	if len(trace.Turns) < 45 || children != 2 {
		t.Errorf("the session has %d turns, of which %d continue another; want at least 45 and 2", len(trace.Turns), children)
	}
}
