package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "muxproxy-test-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "muxproxy")
	if out, err := exec.Command("go", "build", raceFlag, "-o", binary, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build muxproxy: %v\n%s", err, out))
	}
	m.Run()
}

// patience is how long a test waits for something that always comes.
const patience = 30 * time.Second

// daemon is a running muxproxy process.
type daemon struct {
	AdminURL string // of the admin API
	URL      string // of the data plane, without /v1

	PID     int
	token   string
	process *os.Process
	exited  chan struct{}
	err     error // of the process, once exited is closed
	lines   chan string

	mu  sync.Mutex
	log bytes.Buffer
}

// startDaemon starts the binary with this environment, on free ports and with
// a ready file unless env says otherwise, and waits until it serves. It is
// killed when the test ends.
func startDaemon(t *testing.T, env map[string]string) *daemon {
	t.Helper()
	all := map[string]string{
		"MUXPROXY_LISTEN":       "127.0.0.1:0",
		"MUXPROXY_ADMIN_LISTEN": "127.0.0.1:0",
		"MUXPROXY_READY_FILE":   filepath.Join(t.TempDir(), "ready.json"),
	}
	maps.Copy(all, env)
	cmd := exec.Command(binary)
	cmd.Env = environ(cmd, all)
	d := &daemon{token: all["MUXPROXY_ADMIN_TOKEN"], exited: make(chan struct{}), lines: make(chan string, 1<<14)}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.process = cmd.Process
	go func() {
		defer close(d.exited)
		d.collect(stderr)
		d.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = d.process.Kill()
		<-d.exited
		if t.Failed() {
			t.Logf("muxproxy's log:\n%s", d.Log())
		}
	})
	d.waitForLine(t, `"message":"serving"`)
	d.readAddresses(t, all["MUXPROXY_READY_FILE"])
	return d
}

// environ is this test's environment without muxproxy's variables, and env. The
// race detector's pause at the end of a process is left out.
func environ(cmd *exec.Cmd, env map[string]string) []string {
	all := slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "MUXPROXY_") })
	all = append(all, "GORACE=atexit_sleep_ms=0")
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	return all
}

func (d *daemon) collect(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.mu.Lock()
		d.log.WriteString(lines.Text() + "\n")
		d.mu.Unlock()
		select {
		case d.lines <- lines.Text():
		default: // nobody waits for lines any more
		}
	}
	close(d.lines)
}

func (d *daemon) readAddresses(t *testing.T, file string) {
	t.Helper()
	var ready struct {
		PID      int
		URL      string
		AdminURL string `json:"admin_url"`
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &ready); err != nil {
		t.Fatal(err)
	}
	d.URL, d.AdminURL, d.PID = ready.URL, ready.AdminURL, ready.PID
}

// Log is what the daemon has logged so far.
func (d *daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// waitForLine waits until the daemon logs a line with this text.
func (d *daemon) waitForLine(t *testing.T, text string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-d.lines:
			if !ok {
				t.Fatalf("muxproxy ended before it logged %s:\n%s", text, d.Log())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			t.Fatalf("muxproxy did not log %s in %v:\n%s", text, patience, d.Log())
		}
	}
}

// session is a registered rollout.
type session struct {
	ID, Secret string
	BaseURL    string // with /v1, as OPENAI_BASE_URL
}

// register registers a session with this JSON body.
func (d *daemon) register(t *testing.T, jsonBody string) session {
	t.Helper()
	status, body := d.post(t, "/sessions", jsonBody)
	if status != http.StatusCreated {
		t.Fatalf("POST /sessions: got %d %s; want 201", status, body)
	}
	var answer struct {
		ID, Secret string
		Endpoint   struct {
			OpenAIBaseURL string `json:"openai_base_url"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	return session{ID: answer.ID, Secret: answer.Secret, BaseURL: answer.Endpoint.OpenAIBaseURL}
}

// get asks the admin API.
func (d *daemon) get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	return d.do(t, http.MethodGet, path, "")
}

// post sends JSON to the admin API.
func (d *daemon) post(t *testing.T, path, jsonBody string) (status int, body []byte) {
	t.Helper()
	return d.do(t, http.MethodPost, path, jsonBody)
}

// do makes an admin call with any method.
func (d *daemon) do(t *testing.T, method, path, jsonBody string) (status int, body []byte) {
	t.Helper()
	response := d.admin(t, method, path, jsonBody)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// admin makes an admin call; the caller closes the answer's body.
func (d *daemon) admin(t *testing.T, method, path, jsonBody string) *http.Response {
	t.Helper()
	request, err := http.NewRequest(method, d.AdminURL+path, strings.NewReader(jsonBody))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if d.token != "" {
		request.Header.Set("Authorization", "Bearer "+d.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// chat makes a chat call; the caller closes the answer's body.
func (s session) chat(t *testing.T, jsonBody string) *http.Response {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.BaseURL+"/chat/completions", strings.NewReader(jsonBody))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+s.Secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// signal sends the daemon a signal.
func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the daemon to end; the error is nil when it exited with 0.
func (d *daemon) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-d.exited:
		return d.err
	case <-time.After(patience):
		t.Fatalf("muxproxy did not end in %v:\n%s", patience, d.Log())
		return nil
	}
}

// stop ends the daemon in order.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGTERM)
	if err := d.wait(t); err != nil {
		t.Errorf("muxproxy ended with %v; want 0:\n%s", err, d.Log())
	}
}

// runBinary runs the binary to its end.
func runBinary(t *testing.T, env map[string]string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = environ(cmd, env)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}
