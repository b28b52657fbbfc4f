package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// hooks are the settings that say what became of a session's URLs.
type hooks struct {
	StopConditions []struct {
		Name      string
		LastError *string `json:"last_error"`
	} `json:"stop_conditions"`
	User *struct {
		LastError *string `json:"last_error"`
	}
}

// hooksOf are those of a session, which its trace has to show too.
func (d *daemon) hooksOf(t *testing.T, id string) hooks {
	t.Helper()
	var shown hooks
	var trace struct{ Settings hooks }
	_, raw := d.get(t, "/sessions/"+id)
	if err := json.Unmarshal(raw, &shown); err != nil {
		t.Fatal(err)
	}
	_, rawTrace := d.get(t, "/sessions/"+id+"/trace")
	if err := json.Unmarshal(rawTrace, &trace); err != nil {
		t.Fatal(err)
	}
	one, _ := json.Marshal(shown)
	other, _ := json.Marshal(trace.Settings)
	if string(one) != string(other) {
		t.Errorf("the session shows %s, its trace %s", one, other)
	}
	return shown
}

// Whoever wonders why a rollout does not go on finds the URL that failed in the
// session, until it has answered.
func TestSessionShowsWhichOfItsURLsFails(t *testing.T) {
	t.Parallel()
	var answer atomic.Value
	answer.Store("status")
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch a := answer.Load().(string); a {
		case "status":
			http.Error(w, "the judge's own sk-private", http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, a)
		}
	}))
	t.Cleanup(judge.Close)
	upstream, err := scripted.Start(scripted.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	d := startDaemon(t, map[string]string{"MUXPROXY_UPSTREAM_URL": upstream.URL})
	s := d.register(t, `{"id":"a","stop_conditions":[{"name":"submitted","tool_call":"submit"},{"name":"judge","url":"`+judge.URL+`/stop?key=sk-query"}]}`)
	for _, step := range []struct {
		judge  string
		status int    // of the call that is made then
		want   string // of the judge's last_error; "" is none
	}{
		{"status", http.StatusOK, "it answered with status 500"},
		{`{"stop":"true"}`, http.StatusBadGateway, `its answer has a "stop" of type string`},
		{"<html>", http.StatusBadGateway, "its answer: invalid character"},
		{`{"done":true}`, http.StatusBadGateway, `its answer has no "stop"`},
		{`{"stop":false}`, http.StatusOK, ""},
		{"status", http.StatusOK, "it answered with status 500"},
	} {
		answer.Store(step.judge)
		if status, body := chatOnce(t, s); status != step.status {
			t.Fatalf("%s: got %d %s; want %d", step.judge, status, body, step.status)
		}
		shown := d.hooksOf(t, "a").StopConditions
		if shown[0].LastError != nil {
			t.Errorf("%s: got %q of a condition without a URL", step.judge, *shown[0].LastError)
		}
		got := ""
		if shown[1].LastError != nil {
			got = *shown[1].LastError
		}
		if !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") || len(got) > 512 || strings.Contains(got, "sk-") {
			t.Errorf("%s: got %q; want %q", step.judge, got, step.want)
		}
	}
	if status, body := d.do(t, http.MethodDelete, "/sessions/a", ""); status != http.StatusOK {
		t.Fatalf("DELETE: got %d %s", status, body)
	}
	if shown := d.hooksOf(t, "a").StopConditions[1]; shown.LastError == nil {
		t.Error("an ended session does not show that its last turn was not judged")
	}

	s = d.register(t, `{"id":"b","user":{"url":"`+judge.URL+`/user"}}`)
	if status, body := chatOnce(t, s); status != http.StatusBadGateway {
		t.Fatalf("got %d %s; want 502", status, body)
	}
	if user := d.hooksOf(t, "b").User; user.LastError == nil || *user.LastError != "it answered with status 500" {
		t.Errorf("got %+v", user)
	}
	answer.Store(`{"done":true}`)
	if status, body := chatOnce(t, s); status != http.StatusOK {
		t.Fatalf("got %d %s; want 200", status, body)
	}
	if user := d.hooksOf(t, "b").User; user.LastError != nil {
		t.Errorf("got %q; want nothing once it has answered", *user.LastError)
	}
}

func chatOnce(t *testing.T, s session) (status int, body []byte) {
	t.Helper()
	response := s.chat(t, `{"model":"openai","messages":[{"role":"user","content":"hi"}]}`)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}
