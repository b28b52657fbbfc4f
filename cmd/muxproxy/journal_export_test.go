package main_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// exported runs the program and returns the lines of the sessions by their ids.
func exported(t *testing.T, env map[string]string, args ...string) map[string]string {
	t.Helper()
	code, output := runBinary(t, env, append([]string{"export"}, args...)...)
	if code != 0 {
		t.Fatalf("export %v: %d %s", args, code, output)
	}
	lines := make(map[string]string)
	for line := range strings.Lines(output) {
		var trace struct{ ID string }
		if err := json.Unmarshal([]byte(line), &trace); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines[trace.ID] = line
	}
	return lines
}

func TestExportWritesWhatTheAdminAPIAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := durable(t, dir)
	d := startDaemon(t, env)
	live := d.register(t, `{"id":"live","labels":{"env":"a","group":"1"}}`)
	ended := d.register(t, `{"id":"ended","labels":{"env":"a","group":"2"}}`)
	purged := d.register(t, `{"id":"purged","labels":{"env":"b"}}`)
	for _, s := range []session{live, ended, purged} {
		for _, call := range []string{jsonCall, streamCall} {
			if status, answer := s.answer(t, call); status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
		}
	}
	d.do(t, http.MethodDelete, "/sessions/ended", "")
	d.do(t, http.MethodDelete, "/sessions/purged?purge=true", "")
	<-time.After(100 * time.Millisecond) // what nobody waits for is written a moment later

	_, body := d.post(t, "/traces/query", `{"ids":["live","ended"]}`)
	want := make(map[string]string)
	for i, line := range bytes.SplitAfter(body, []byte("\n")) {
		if i < 2 {
			want[[]string{"live", "ended"}[i]] = string(line)
		}
	}
	check := func(got map[string]string, ids ...string) {
		t.Helper()
		if len(got) != len(ids) {
			t.Errorf("got %d sessions; want %v", len(got), ids)
		}
		for _, id := range ids {
			if withoutLease(t, got[id]) != withoutLease(t, want[id]) {
				t.Errorf("%s: got\n%s\nwant\n%s", id, got[id], want[id])
			}
		}
	}
	for _, running := range []bool{true, false} {
		check(exported(t, env), "live", "ended")
		check(exported(t, nil, "--state-dir", dir, "--session", "ended"), "ended")
		check(exported(t, env, "--label", "env:a", "--label", "group:1"), "live")
		check(exported(t, env, "--label", "env:b"))
		if running {
			if err := d.process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-d.exited
		}
	}
	d = startDaemon(t, env)
	d.stop(t)
	check(exported(t, env), "live", "ended")

	for _, args := range [][]string{{"--session", "purged"}, {"--session", "strange"}} {
		if code, output := runBinary(t, env, append([]string{"export"}, args...)...); code != 1 || !strings.Contains(output, "no trace of "+args[1]) {
			t.Errorf("%v: %d %s", args, code, output)
		}
	}
	if code, output := runBinary(t, nil, "export"); code != 2 || !strings.Contains(output, "--state-dir") {
		t.Errorf("without a folder: %d %s", code, output)
	}
}

// withoutLease is a trace without what depends on when it was asked for.
func withoutLease(t *testing.T, line string) string {
	t.Helper()
	var trace map[string]any
	if err := json.Unmarshal([]byte(line), &trace); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	delete(trace["session"].(map[string]any), "expires_at")
	raw, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
