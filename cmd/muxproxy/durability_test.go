package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// durable is the environment of a daemon with a journal.
func durable(t *testing.T, dir string) map[string]string {
	t.Helper()
	return map[string]string{
		"MUXPROXY_UPSTREAM_URL": echo(t).URL, "MUXPROXY_UPSTREAM_API_KEY": "sk-of-the-upstream", "MUXPROXY_ADMIN_TOKEN": "token-of-the-admin",
		"MUXPROXY_STATE_DIR": dir, "MUXPROXY_LISTEN": freePort(t), "MUXPROXY_ADMIN_LISTEN": freePort(t),
	}
}

const (
	jsonCall   = `{"model":"m","messages":[{"role":"user","content":"1"}]}`
	streamCall = `{"model":"m","stream":true,"messages":[{"role":"user","content":"12"}]}`
)

// answer makes a call and reads its whole answer.
func (s session) answer(t *testing.T, body string) (status int, answer string) {
	t.Helper()
	response := s.chat(t, body)
	defer func() { _ = response.Body.Close() }()
	raw, _ := io.ReadAll(response.Body) // a stream that is broken off is read as far as it goes
	return response.StatusCode, string(raw)
}

func TestASecondDaemonOnTheSameStateDirRefusesToStart(t *testing.T) {
	t.Parallel()
	env := durable(t, t.TempDir())
	d := startDaemon(t, env)
	env["MUXPROXY_LISTEN"], env["MUXPROXY_ADMIN_LISTEN"] = "127.0.0.1:0", "127.0.0.1:0"
	code, output := runBinary(t, env)
	if code != 1 || !strings.Contains(output, "MUXPROXY_STATE_DIR") || !strings.Contains(output, "in use by another muxproxy (process ") {
		t.Errorf("the second daemon: %d %s", code, output)
	}
	d.stop(t)
	startDaemon(t, env).stop(t)
}

// An upstream that was put over the admin API is gone after a restart, and its
// sessions are not: who starts the daemon has to know.
func TestStartNamesTheUpstreamsThatSessionsMiss(t *testing.T) {
	t.Parallel()
	env := durable(t, t.TempDir())
	d := startDaemon(t, env)
	eu := `{"replicas":[{"url":"` + env["MUXPROXY_UPSTREAM_URL"] + `"}]}`
	if status, body := d.do(t, http.MethodPut, "/upstreams/eu", eu); status != http.StatusOK {
		t.Fatalf("PUT: got %d %s", status, body)
	}
	d.register(t, `{"id":"a"}`)
	s := d.register(t, `{"id":"b","upstream":"eu"}`)
	d.register(t, `{"id":"c","upstream":"eu"}`)
	if status, body := d.do(t, http.MethodDelete, "/sessions/c", ""); status != http.StatusOK {
		t.Fatalf("DELETE: got %d %s", status, body)
	}
	d.stop(t)
	d = startDaemon(t, env)
	if log := d.Log(); strings.Count(log, `"warning"`) != 1 || !strings.Contains(log, `"session":"b","sessions":1,"warning":"upstream: there is no upstream eu; calls fail until there is"`) {
		t.Errorf("got\n%s\nwant a warning of session b's upstream", log)
	}
	d.do(t, http.MethodPut, "/upstreams/eu", eu)
	if status, answer := s.answer(t, jsonCall); status != http.StatusOK {
		t.Errorf("got %d %s; want 200 once the upstream is there again", status, answer)
	}
}

func TestNoSecretIsOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := durable(t, dir)
	d := startDaemon(t, env)
	made := d.register(t, `{}`)
	given := d.register(t, `{"secret":"a-secret-that-the-client-has-given"}`)
	for _, s := range []session{made, given} {
		if status, answer := s.answer(t, jsonCall); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	status, body := d.post(t, "/sessions/"+made.ID+"/rotate", "")
	var rotated struct{ Secret string }
	if err := json.Unmarshal(body, &rotated); status != http.StatusOK || err != nil || rotated.Secret == "" {
		t.Fatalf("rotate: %d %s", status, body)
	}
	if err := d.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, secret := range []string{made.Secret, given.Secret, rotated.Secret, "sk-of-the-upstream", "token-of-the-admin"} {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s holds %s", path, secret)
			}
		}
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil || files < 3 {
		t.Errorf("%d files: %v", files, err)
	}
	startDaemon(t, env)
	for secret, want := range map[string]int{made.Secret: http.StatusUnauthorized, given.Secret: http.StatusOK, rotated.Secret: http.StatusOK} {
		if status, answer := (session{Secret: secret, BaseURL: made.BaseURL}).answer(t, jsonCall); status != want {
			t.Errorf("after the restart %s gets %d %s; want %d", secret, status, answer, want)
		}
	}
}

func TestADiskThatFailsFailsTurnsLoudlyAndRecovers(t *testing.T) {
	t.Parallel()
	env := durable(t, t.TempDir())
	d := startDaemon(t, env)
	s := d.register(t, `{"id":"a"}`)
	other := d.register(t, `{"id":"b"}`)
	if status, answer := s.answer(t, jsonCall); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	d.limitFiles(t, 0)
	if status, answer := s.answer(t, jsonCall); status != http.StatusServiceUnavailable || !strings.Contains(answer, `"commit_failed"`) {
		t.Errorf("JSON: %d %s", status, answer)
	}
	if _, answer := s.answer(t, streamCall); strings.Contains(answer, "[DONE]") || !strings.Contains(answer, `"commit_failed"`) {
		t.Errorf("stream: %s", answer)
	}
	if status, body := d.post(t, "/sessions", `{"id":"c"}`); status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte(`"commit_failed"`)) {
		t.Errorf("registering: %d %s", status, body)
	}
	if status, _ := d.get(t, "/sessions/c"); status != http.StatusNotFound {
		t.Errorf("the session that could not be registered: %d", status)
	}
	if status, body := d.get(t, "/readyz"); status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte("journal")) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if _, body := d.get(t, "/metrics"); bytes.Contains(body, []byte("muxproxy_journal_errors_total 0\n")) {
		t.Errorf("no errors are counted")
	}
	if status, body := d.do(t, http.MethodDelete, "/sessions/b", ""); status != http.StatusOK {
		t.Errorf("ending: %d %s", status, body)
	}
	if status, answer := other.answer(t, jsonCall); status != http.StatusGone {
		t.Errorf("the session that ended meanwhile: %d %s", status, answer)
	}
	d.limitFiles(t, unix.RLIM_INFINITY)
	d.waitUntilReady(t)
	if status, answer := s.answer(t, jsonCall); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, answer)
	}
	wantTrace := func(d *daemon) {
		t.Helper()
		var trace struct {
			Turns       []recordedTurn
			FailedCalls []struct{ Error struct{ Kind string } } `json:"failed_calls"`
		}
		_, body := d.get(t, "/sessions/a/trace")
		if err := json.Unmarshal(body, &trace); err != nil {
			t.Fatal(err)
		}
		if len(trace.Turns) != 2 || len(trace.FailedCalls) != 2 || trace.FailedCalls[0].Error.Kind != "commit_failed" {
			t.Errorf("the trace is %s", body)
		}
	}
	wantTrace(d)
	<-time.After(100 * time.Millisecond) // what nobody waits for is written a moment later
	if err := d.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	d = startDaemon(t, env)
	wantTrace(d)
	if status, answer := other.answer(t, jsonCall); status != http.StatusGone {
		t.Errorf("the session that ended meanwhile, after a restart: %d %s", status, answer)
	}
}

// limitFiles makes writes beyond that size fail in the daemon, as on a disk that is full.
func (d *daemon) limitFiles(t *testing.T, size uint64) {
	t.Helper()
	if err := unix.Prlimit(d.PID, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) waitUntilReady(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if status, _ := d.get(t, "/readyz"); status == http.StatusOK {
			return
		}
	}
	t.Fatal("/readyz did not become 200")
}
