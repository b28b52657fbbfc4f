package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slowModel streams an answer: its beginning at once, its end when finish is
// closed.
type slowModel struct {
	*httptest.Server
	finish chan struct{}
	left   chan struct{} // closed when a client has left in the middle

	once sync.Once
}

func newSlowModel(t *testing.T) *slowModel {
	t.Helper()
	m := &slowModel{finish: make(chan struct{}), left: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"first"},"finish_reason":null}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-m.finish:
		case <-r.Context().Done():
			m.once.Do(func() { close(m.left) })
			return
		}
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":" last"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(m.Close)
	return m
}

const streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// begin makes a streamed call, reads its first event and returns the rest.
func begin(t *testing.T, s session) *bufio.Reader {
	t.Helper()
	response := s.chat(t, streamBody)
	t.Cleanup(func() { _ = response.Body.Close() })
	stream := bufio.NewReader(response.Body)
	line, err := stream.ReadString('\n')
	if err != nil || !strings.Contains(line, "first") {
		t.Fatalf("first event: got %q and %v", line, err)
	}
	return stream
}

// waitUntilDraining waits until the daemon is no longer ready.
func (d *daemon) waitUntilDraining(t *testing.T) {
	t.Helper()
	d.waitForLine(t, `"message":"stopping"`)
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if status, _ := d.get(t, "/readyz"); status == http.StatusServiceUnavailable {
			return
		}
	}
	t.Fatal("/readyz did not become 503")
}

func TestSigtermMidStreamFinishesTheStreamAndRefusesNewWork(t *testing.T) {
	model := newSlowModel(t)
	ready := filepath.Join(t.TempDir(), "ready.json")
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": model.URL, "MUXPROXY_READY_FILE": ready})
	if status, _ := d.get(t, "/readyz"); status != http.StatusOK {
		t.Fatalf("/readyz: got %d; want 200", status)
	}
	s := d.register(t, `{"id":"r"}`)
	stream := begin(t, s)

	d.signal(t, syscall.SIGTERM)
	d.waitUntilDraining(t)
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ready file: got %v; want it gone", err)
	}
	refused := s.chat(t, streamBody)
	body, _ := io.ReadAll(refused.Body)
	_ = refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"draining"`) {
		t.Errorf("new call: got %d %v %s; want 503 draining with Retry-After", refused.StatusCode, refused.Header, body)
	}
	registering := d.admin(t, http.MethodPost, "/sessions", `{}`)
	_ = registering.Body.Close()
	if registering.StatusCode != http.StatusServiceUnavailable || registering.Header.Get("Retry-After") == "" {
		t.Errorf("registering: got %d %v; want 503 with Retry-After", registering.StatusCode, registering.Header)
	}

	close(model.finish)
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the stream's end: got %q and %v; want a clean one", rest, err)
	}
	if err := d.wait(t); err != nil {
		t.Errorf("got %v; want exit code 0:\n%s", err, d.Log())
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	model := newSlowModel(t)
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": model.URL, "MUXPROXY_SHUTDOWN_TIMEOUT": "10m"})
	begin(t, d.register(t, `{}`))
	d.signal(t, syscall.SIGTERM)
	d.waitUntilDraining(t)
	d.signal(t, syscall.SIGTERM)
	if err := d.wait(t); err == nil {
		t.Error("got exit code 0; want a sign that work was cut")
	}
}

func TestCallsThatOutliveTheShutdownTimeoutAreCutAndReported(t *testing.T) {
	model := newSlowModel(t)
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": model.URL, "MUXPROXY_SHUTDOWN_TIMEOUT": "100ms"})
	stream := begin(t, d.register(t, `{}`))
	d.signal(t, syscall.SIGTERM)
	if err := d.wait(t); err == nil || strings.Count(d.Log(), "1 calls cut") != 1 {
		t.Errorf("got %v; want exit code 1 and the cut reported once:\n%s", err, d.Log())
	}
	lines := strings.Split(strings.TrimSpace(d.Log()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, `{"level":"error"`) || !strings.Contains(last, "1 calls cut") {
		t.Errorf("the last line: got %s; want an error with the cut", last)
	}
	rest, err := io.ReadAll(stream)
	if err == nil || strings.Contains(string(rest), "[DONE]") || !strings.Contains(string(rest), `"code":"draining"`) {
		t.Errorf("got %q, %v; want an error event and a broken stream", rest, err)
	}
	if !strings.Contains(d.Log(), `"outcome":"cancelled"`) {
		t.Errorf("the call was not recorded as cancelled:\n%s", d.Log())
	}
	select {
	case <-model.left:
	case <-time.After(patience):
		t.Error("the upstream's stream was not cancelled")
	}
}

func TestReadyFileTellsTheAddressesOfWhatServes(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready.json")
	d := startDaemon(t, map[string]string{"MUXPROXY_READY_FILE": ready, "MUXPROXY_ADVERTISE_URL": "https://mux.example.net/a/"})
	text, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if int(file["pid"].(float64)) != d.process.Pid || file["url"] != "https://mux.example.net/a" {
		t.Errorf("got %s; want pid %d and the advertised URL", text, d.process.Pid)
	}
	for _, name := range []string{"listen", "admin_listen"} {
		conn, err := net.Dial("tcp", file[name].(string))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
	if s := d.register(t, `{}`); s.BaseURL != "https://mux.example.net/a/v1" {
		t.Errorf("endpoint: got %s; want the advertised URL", s.BaseURL)
	}
	d.stop(t)
}

func TestAnUnreachableUpstreamIsAWarningAndNoModelIsCalled(t *testing.T) {
	called := make(chan string, 16)
	reachable := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.URL.Path }))
	defer reachable.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": reachable.URL + "," + gone.URL})
	if line := d.waitForLine(t, "cannot be reached"); !strings.Contains(line, gone.URL) || !strings.Contains(line, `"warn"`) {
		t.Errorf("got %s; want a warning about %s", line, gone.URL)
	}
	if status, _ := d.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: got %d; want 200", status)
	}
	d.stop(t)
	if strings.Contains(d.Log(), reachable.URL+`","message":"upstream cannot`) {
		t.Errorf("the reachable upstream was warned of:\n%s", d.Log())
	}
	select {
	case path := <-called:
		t.Errorf("the upstream was sent a request for %s", path)
	default:
	}
}

func TestStartingWithoutAnUpstreamSaysHowToGetOne(t *testing.T) {
	d := startDaemon(t, nil)
	if !strings.Contains(d.Log(), "MUXPROXY_UPSTREAM_URL") {
		t.Errorf("got\n%s\nwant a hint", d.Log())
	}
	d.stop(t)
}

func TestEverySessionThatEndsIsLoggedWithItsReason(t *testing.T) {
	model := newSlowModel(t)
	close(model.finish)
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": model.URL})
	a := d.register(t, `{"id":"a","limits":{"max_turns":1}}`)
	_, _ = io.Copy(io.Discard, begin(t, a))
	_ = a.chat(t, streamBody).Body.Close() // refused: the limit is reached
	d.register(t, `{"id":"b","lease":"1ms"}`)
	if line := d.waitForLine(t, `"session ended"`); !strings.Contains(line, `"session":"b","reason":"lease_expired","turns":0`) {
		t.Errorf("got %s; want the end of b's lease", line)
	}
	d.do(t, http.MethodDelete, "/sessions/a", "")
	if line := d.waitForLine(t, `"session ended"`); !strings.Contains(line, `"session":"a","reason":"deleted","turns":1,"stop_condition":"max_turns"`) {
		t.Errorf("got %s; want that a was deleted", line)
	}
	d.stop(t)
}

func TestProfilesNeedPprofAndTheAdminToken(t *testing.T) {
	with := startDaemon(t, map[string]string{"MUXPROXY_PPROF": "true", "MUXPROXY_ADMIN_TOKEN": "t0ken"})
	if status, body := with.get(t, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(string(body), "goroutine profile") {
		t.Errorf("with the token: got %d %.100s; want a profile", status, body)
	}
	with.token = "other"
	if status, _ := with.get(t, "/debug/pprof/"); status != http.StatusUnauthorized {
		t.Errorf("with another token: got %d; want 401", status)
	}
	without := startDaemon(t, nil)
	if status, _ := without.get(t, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("without PPROF: got %d; want 404", status)
	}
}

func TestTheDataPlaneHasNoAdminAPIAndTheAdminAPINoDataPlane(t *testing.T) {
	d := startDaemon(t, nil)
	for _, path := range []string{"/sessions", "/metrics", "/readyz", "/openapi.json", "/docs"} {
		response, err := http.Get(d.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("data plane %s: got %d; want 404", path, response.StatusCode)
		}
	}
	if status, _ := d.post(t, "/v1/chat/completions", streamBody); status != http.StatusNotFound {
		t.Errorf("admin listener, a model call: got %d; want 404", status)
	}
}

func TestAProblemAtTheStartIsPrintedAndExitsWithOne(t *testing.T) {
	for _, test := range []struct {
		args []string
		env  map[string]string
		code int
		want string
	}{
		{nil, map[string]string{"MUXPROXY_LISTEN": "x", "MUXPROXY_LEASE": "soon"}, 1, "MUXPROXY_LEASE"},
		{nil, map[string]string{"MUXPROXY_ADMIN_TOKEN_FILE": "/nonexistent/token"}, 1, "MUXPROXY_ADMIN_TOKEN_FILE: open /nonexistent/token"},
		{[]string{"sevre"}, nil, 2, "unknown command"},
		{[]string{"version"}, nil, 0, "muxproxy"},
	} {
		code, out := runBinary(t, test.env, test.args...)
		if code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%q %v: got exit code %d and %q; want %d and %q", test.args, test.env, code, out, test.code, test.want)
		}
	}
}
