package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
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

func TestAUsageErrorIsOneLineThatPointsToTheHelp(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"sevre", `muxproxy: unknown command "sevre"; see 'muxproxy help'`},
		{"help sevre", `muxproxy: unknown command "sevre"; see 'muxproxy help'`},
		{"check extra", `muxproxy check: unexpected argument "extra"; see 'muxproxy help check'`},
		{"check -verbose", `muxproxy check: flag provided but not defined: -verbose; see 'muxproxy help check'`},
		{"-verbose", `muxproxy serve: flag provided but not defined: -verbose; see 'muxproxy help serve'`},
		{"openapi -format xml", `muxproxy openapi: -format "xml": accepts json or yaml; see 'muxproxy help openapi'`},
		{"demo -rollouts 0", `muxproxy demo: -rollouts accepts 1 to 1000 and -turns 2 to 100; see 'muxproxy help demo'`},
		{"demo -turns 1", `muxproxy demo: -rollouts accepts 1 to 1000 and -turns 2 to 100; see 'muxproxy help demo'`},
		{"demo -turns x", `muxproxy demo: invalid value "x" for flag -turns: parse error; see 'muxproxy help demo'`},
	} {
		if _, _, err := run(t, nil, strings.Fields(test.args)...); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v; want %s", test.args, err, test.want)
		}
	}
}

func TestHelpIsPrintedAndIsNoError(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"help", "commands:"},
		{"-h", "commands:"},
		{"--help", "commands:"},
		{"serve -h", "commands:"},
		{"demo --help", "flags of muxproxy demo:"},
		{"help demo", "flags of muxproxy demo:"},
	} {
		stdout, _, err := run(t, nil, strings.Fields(test.args)...)
		if err != nil || !strings.HasPrefix(stdout, "usage: muxproxy") || !strings.Contains(stdout, test.want) {
			t.Errorf("%s: got %q and %v; want the usage with %q", test.args, stdout, err, test.want)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		stdout, _, err := run(t, nil, args)
		if err != nil || !strings.HasPrefix(stdout, "muxproxy ") || !strings.Contains(stdout, "go1.") {
			t.Errorf("%s: got %q and %v; want versions", args, stdout, err)
		}
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
		"MUXPROXY_LEASE 90m ", "MUXPROXY_MAX_TRACE_BYTES 4GiB ", "MUXPROXY_ADMIN_TOKEN (hidden) ", "MUXPROXY_UPSTREAM_HEADERS X-Team ",
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
		for _, want := range []string{"ROLLOUT", "OUTCOME", "demo-1", "srv-1", "ok: ", "built-in-demo-model"} {
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

func TestDemoShowsATraceAndMetricsOfItsRun(t *testing.T) {
	stdout, _, err := run(t, nil, "demo", "-turns", "3", "-rollouts", "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^demo-1 .* 35/23 `, // what the turns add up to, as the session's summary has it
		`(?m)^  0 +- +21/8 +tool_calls +add\(`,
		`(?m)^  1 +0 +33/7 +stop +The answer is 1\.$`,
		`(?m)^  2 +1 +50/8 +tool_calls +add\(`,
		`(?m)^  muxproxy_turns_total\{dialect="chat"\} 3$`,
		`(?m)^  muxproxy_tokens_total\{type="input",upstream="default"\} 104$`,
		`(?m)^Again, and it stays up: make demo DEMO_FLAGS=--keep$`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("want %s in:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "curl") {
		t.Errorf("want no command that cannot work any more in:\n%s", stdout)
	}
}

func TestDemoThatStaysUpSaysWhatToTry(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	up := &notifier{text: "Ctrl-C", seen: make(chan struct{}), next: &stdout}
	done := make(chan error, 1)
	go func() { done <- main.Run(ctx, []string{"demo", "--keep", "--rollouts", "1"}, nil, up, &stderr) }()
	select {
	case <-up.seen:
	case err := <-done:
		t.Fatalf("ended with %v:\n%s%s", err, stdout.String(), stderr.String())
	}
	trace := regexp.MustCompile(`curl -s (http://\S+/sessions/demo-1/trace)`).FindStringSubmatch(stdout.String())
	if trace == nil {
		t.Fatalf("no command for a trace in:\n%s", stdout.String())
	}
	response, err := http.Get(trace[1])
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: got %d; want 200", trace[1], response.StatusCode)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v; want nil", err)
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
	_, stderr, err := run(t, map[string]string{
		"MUXPROXY_LISTEN": "127.0.0.1:0", "MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0",
		"MUXPROXY_READY_FILE": filepath.Join(t.TempDir(), "missing", "ready.json"),
	})
	if err == nil || !strings.Contains(stderr, `"error":"MUXPROXY_READY_FILE: `) {
		t.Errorf("got %v; want an error, and the variable named in the log:\n%s", err, stderr)
	}
}

// notifier tells when a line with a text has been written. Writes come one by
// one.
type notifier struct {
	text string
	seen chan struct{}
	next *bytes.Buffer
	told bool
}

func (n *notifier) Write(p []byte) (int, error) {
	written, err := n.next.Write(p)
	if !n.told && bytes.Contains(p, []byte(n.text)) {
		n.told = true
		close(n.seen)
	}
	return written, err
}
