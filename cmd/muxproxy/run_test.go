package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
)

// run runs a command in this process.
func run(t *testing.T, env map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var variables []string
	for name, value := range env {
		variables = append(variables, name+"="+value)
	}
	var out, log bytes.Buffer
	err = main.Run(t.Context(), args, variables, &out, &log)
	return out.String(), log.String(), err
}

func TestCommandLinesThatCannotBeUnderstoodGetTheUsage(t *testing.T) {
	for _, args := range [][]string{
		{"sevre"},
		{"check", "extra"},
		{"check", "-verbose"},
		{"-verbose"},
		{"openapi", "-format", "xml"},
		{"demo", "-rollouts", "0"},
		{"demo", "-turns", "1"},
		{"demo", "-turns", "x"},
	} {
		_, _, err := run(t, nil, args...)
		if err == nil || !strings.Contains(err.Error(), "usage: muxproxy") {
			t.Errorf("%q: got %v; want the usage", args, err)
		}
	}
}

func TestHelpIsPrintedAndIsNoError(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"demo", "--help"}} {
		stdout, _, err := run(t, nil, args...)
		if err != nil || !strings.Contains(stdout, "usage: muxproxy") {
			t.Errorf("%q: got %q and %v; want the usage", args, stdout, err)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	stdout, _, err := run(t, nil, "version")
	if err != nil || !strings.HasPrefix(stdout, "muxproxy ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("got %q and %v; want versions", stdout, err)
	}
}

func TestOpenAPIIsPrintedInBothFormats(t *testing.T) {
	for _, args := range [][]string{{"openapi"}, {"openapi", "-format", "json"}} {
		stdout, _, err := run(t, nil, args...)
		var document struct {
			OpenAPI string
			Paths   map[string]any
		}
		if err != nil || json.Unmarshal([]byte(stdout), &document) != nil {
			t.Fatalf("%q: got %.200q and %v; want JSON", args, stdout, err)
		}
		if !strings.HasPrefix(document.OpenAPI, "3.1") || document.Paths["/sessions"] == nil {
			t.Errorf("%q: got version %s with paths %d; want 3.1 with /sessions", args, document.OpenAPI, len(document.Paths))
		}
	}
	stdout, _, err := run(t, nil, "openapi", "-format", "yaml")
	if err != nil || !strings.Contains(stdout, "openapi: 3.1") {
		t.Errorf("got %.200q and %v; want YAML", stdout, err)
	}
}

func TestCheckPrintsWhatIsInEffectWithoutSecrets(t *testing.T) {
	const secret = "s3cr3t"
	stdout, _, err := run(t, map[string]string{
		"MUXPROXY_UPSTREAM_URL":     "http://user:" + secret + "@10.0.0.1:8000,https://api.example.com/openai",
		"MUXPROXY_UPSTREAM_API_KEY": secret,
		"MUXPROXY_UPSTREAM_HEADERS": "X-Team=" + secret,
		"MUXPROXY_ADMIN_TOKEN_FILE": write(t, secret+"\n"),
		"MUXPROXY_UPSTREAMS_FILE":   write(t, `{"judge":{"replicas":[{"url":"http://judge/v1"}],"api_key":"`+secret+`"}}`),
		"MUXPROXY_LEASE":            "90m",
		"MUXPROXY_MAX_TRACE_BYTES":  "4GiB",
	}, "check")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stdout, secret) {
		t.Errorf("a secret is printed:\n%s", stdout)
	}
	printed := strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{
		"MUXPROXY_LEASE 1h30m ", "MUXPROXY_MAX_TRACE_BYTES 4GiB ", "MUXPROXY_ADMIN_TOKEN (hidden) ", "MUXPROXY_UPSTREAM_HEADERS X-Team ",
		"MUXPROXY_LISTEN 127.0.0.1:8080 ", "@10.0.0.1:8000,https://api.example.com/openai ", "upstream judge ",
		"/v1/chat/completions http://10.0.0.1:8000/v1/chat/completions ", "/v1/models https://api.example.com/openai/models",
		"/v1/chat/completions http://judge/v1/chat/completions",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("want %q in:\n%s", want, stdout)
		}
	}
}

func TestCheckReportsEveryProblem(t *testing.T) {
	_, _, err := run(t, map[string]string{"MUXPROXY_LEASE": "soon", "MUXPROXY_LISTEN": "x"}, "check")
	if err == nil || !strings.Contains(err.Error(), "MUXPROXY_LEASE") || !strings.Contains(err.Error(), "MUXPROXY_LISTEN") {
		t.Errorf("got %v; want both variables", err)
	}
}

func TestABusyPortIsAnErrorThatNamesTheVariable(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for variable, other := range map[string]string{"MUXPROXY_LISTEN": "MUXPROXY_ADMIN_LISTEN", "MUXPROXY_ADMIN_LISTEN": "MUXPROXY_LISTEN"} {
		_, _, err := run(t, map[string]string{variable: taken.Addr().String(), other: "127.0.0.1:0"})
		if err == nil || !strings.Contains(err.Error(), variable+": ") || !strings.Contains(err.Error(), taken.Addr().String()) {
			t.Errorf("%s: got %v; want it and %s named", variable, err, taken.Addr())
		}
	}
}

func TestHealthcheckTellsWhetherTheDaemonIsAlive(t *testing.T) {
	status := http.StatusOK
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s; want /healthz", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer daemon.Close()
	addr := daemon.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	ready := write(t, `{"pid":1,"admin_listen":"`+addr+`"}`)
	for _, env := range []map[string]string{
		{"MUXPROXY_ADMIN_LISTEN": addr},
		{"MUXPROXY_ADMIN_LISTEN": ":" + port, "MUXPROXY_ADMIN_TOKEN": "t"},
		{"MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0", "MUXPROXY_READY_FILE": ready},
	} {
		if stdout, _, err := run(t, env, "healthcheck"); err != nil || stdout != "ok\n" {
			t.Errorf("%v: got %q and %v; want ok", env, stdout, err)
		}
	}
	status = http.StatusInternalServerError
	if _, _, err := run(t, map[string]string{"MUXPROXY_ADMIN_LISTEN": addr}, "healthcheck"); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("ill daemon: got %v; want an error", err)
	}
	daemon.Close()
	if _, _, err := run(t, map[string]string{"MUXPROXY_ADMIN_LISTEN": addr}, "healthcheck"); err == nil {
		t.Error("no daemon: got nil; want an error")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, env := range []map[string]string{
		{"MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0"},
		{"MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0", "MUXPROXY_READY_FILE": missing},
	} {
		if _, _, err := run(t, env, "healthcheck"); err == nil {
			t.Errorf("%v: got nil; want an error", env)
		}
	}
}

func TestDemoVerifiesItsTracesAndPrintsATable(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, args := range [][]string{{"demo"}, {"demo", "-rollouts", "1", "-turns", "2"}, {"demo", "--rollouts", "5", "--turns", "4"}} {
		stdout, stderr, err := run(t, map[string]string{"MUXPROXY_LISTEN": "ignored in the demo"}, args...)
		if err != nil {
			t.Fatalf("%q: %v\n%s%s", args, err, stdout, stderr)
		}
		for _, want := range []string{"ROLLOUT", "OUTCOME", "demo-1", "srv-1", "ok: ", "/sessions/demo-1/trace", "/metrics", "built-in-demo-model"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q: want %q in:\n%s", args, want, stdout)
			}
		}
		if len(args) != 5 || args[2] != "1" {
			for _, want := range []string{"stopped: max_turns", "stopped: submitted", "stream", "JSON"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q: want %q in:\n%s", args, want, stdout)
				}
			}
		}
		if stderr != "" {
			t.Errorf("%q: want nothing logged, got:\n%s", args, stderr)
		}
	}
}

func TestServeInProcessLeavesNoGoroutineBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ready := filepath.Join(t.TempDir(), "ready.json")
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	served := &notifier{text: `"serving"`, seen: make(chan struct{}), next: &stderr}
	done := make(chan error, 1)
	go func() {
		done <- main.Run(ctx, nil, []string{
			"MUXPROXY_LISTEN=127.0.0.1:0", "MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE=" + ready,
			"MUXPROXY_UPSTREAM_URL=http://127.0.0.1:1", "MUXPROXY_UPSTREAM_STYLE=vllm",
		}, &bytes.Buffer{}, served)
	}()
	select {
	case <-served.seen:
	case err := <-done:
		t.Fatalf("ended with %v:\n%s", err, stderr.String())
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v; want nil:\n%s", err, stderr.String())
	}
}

func TestAReadyFileThatCannotBeWrittenEndsTheDaemonInOrder(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	_, _, err := run(t, map[string]string{
		"MUXPROXY_LISTEN": "127.0.0.1:0", "MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0",
		"MUXPROXY_READY_FILE": filepath.Join(t.TempDir(), "missing", "ready.json"),
	})
	if err == nil || !strings.Contains(err.Error(), "MUXPROXY_READY_FILE") {
		t.Errorf("got %v; want the variable named", err)
	}
}

// notifier tells when a line with a text is written. Writes come one by one.
type notifier struct {
	text string
	seen chan struct{}
	next *bytes.Buffer
	told bool
}

func (n *notifier) Write(p []byte) (int, error) {
	if !n.told && bytes.Contains(p, []byte(n.text)) {
		n.told = true
		close(n.seen)
	}
	return n.next.Write(p)
}
