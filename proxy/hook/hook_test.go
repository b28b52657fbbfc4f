package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyAllowedHostsAreCalled(t *testing.T) {
	for _, test := range []struct {
		hosts, url string
		allowed    bool
	}{
		{"", "http://127.0.0.1:9100/stop", true},
		{"", "http://[::1]:9100/stop", true},
		{"", "http://localhost:9100", true},
		{"", "http://127.8.0.1/", true},
		{"", "http://[::ffff:127.0.0.1]/", true},
		{"", "http://10.0.0.1/", false},
		{"", "http://169.254.169.254/latest/meta-data", false},
		{"", "http://localhost.example.net/", false},
		{"", "http://judge.internal/", false},
		{"judge.internal", "https://Judge.Internal:8443/x?y=z", true},
		{"judge.internal", "http://judge.internal./", true},
		{"judge.internal", "http://127.0.0.1/", false},
		{"judge.internal, loopback", "http://127.0.0.1/", true},
		{"10.0.0.0/8", "http://10.9.8.7/", true},
		{"10.0.0.0/8", "http://11.9.8.7/", false},
		{"10.0.0.7", "http://10.0.0.7/", true},
		{"10.0.0.7", "http://10.0.0.8/", false},
		{"*", "http://anything.example/", true},
		{"*", "ftp://anything.example/", false},
		{"*", "http://user:password@anything.example/", false},
		{"*", "http:///stop", false},
		{"*", "stop", false},
	} {
		hosts, err := hook.ParseHosts(test.hosts)
		if err != nil {
			t.Fatal(err)
		}
		if err := hosts.Check(test.url); (err == nil) != test.allowed {
			t.Errorf("%q, %s: got %v; want allowed %t", test.hosts, test.url, err, test.allowed)
		}
	}
}

func TestHostsThatAreNoneAreRefused(t *testing.T) {
	for _, list := range []string{"a,,b", "http://judge", "judge:80", "10.0.0.0/99", "*.example.net", "a b"} {
		if _, err := hook.ParseHosts(list); err == nil {
			t.Errorf("%q: want an error", list)
		}
	}
}

// asked posts to a hook that this handler is.
func asked(t *testing.T, handler http.HandlerFunc) (answer map[string]any, err error) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	c := hook.New(hook.Options{})
	defer c.Close()
	err = c.Post(t.Context(), "stop condition judge", server.URL+"/stop", time.Minute, map[string]any{"n": 1}, &answer)
	return answer, err
}

func TestHookIsAskedInJSON(t *testing.T) {
	answer, err := asked(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || string(body) != `{"n":1}` {
			t.Errorf("got %s %s %s", r.Method, r.Header, body)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"stop": true})
	})
	if err != nil || answer["stop"] != true {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestHookThatFailsIsAnErrorThatNamesItAndNotItsAddress(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"status 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"status 302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
		},
		"its answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") },
		"over":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", 17<<20)) },
		"EOF":        func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		_, err := asked(t, handler)
		failed, ok := errors.AsType[*hook.Error](err)
		if !ok || failed.Hook != "stop condition judge" || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAnswerOfAnotherShapeIsToldInTheWordsOfJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"stop":"true"}`:     `its answer has a "stop" of type string`,
		`{"stop":12345}`:      `its answer has a "stop" of type number`,
		`[true]`:              `its answer is no object but of type array`,
		`{"messages":["hi"]}`: "",
		`{"messages":"hi"}`:   `its answer has a "messages" of type string`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		c := hook.New(hook.Options{})
		var answer struct {
			Stop     *bool             `json:"stop"`
			Messages []json.RawMessage `json:"messages"`
		}
		err := c.Post(t.Context(), "judge", server.URL, time.Minute, 1, &answer)
		if got := errors.Unwrap(err); (want == "") != (got == nil) || got != nil && got.Error() != want {
			t.Errorf("%s: got %v; want %s", text, got, want)
		}
		c.Close()
		server.Close()
	}
}

func TestHookThatCannotBeReachedIsAnErrorWithoutItsAddress(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for want, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"connection refused": nil,
		"no such host": func(_ context.Context, network, addr string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: addr, Server: "127.0.0.53:53"}}
		},
		reset.Error(): func(_ context.Context, network, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "read", Net: network, Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: reset}
		},
	} {
		c := hook.New(hook.Options{Dial: dial})
		err := c.Post(t.Context(), "user", "http://127.0.0.1:1/stop", time.Minute, 1, new(any))
		c.Close()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "127.0.0") {
			t.Errorf("got %v; want %s and no address", err, want)
		}
	}
}

func TestHookHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := scripted.NewNetwork()
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})}
		go func() { _ = server.Serve(network) }()
		defer server.Close()
		c := hook.New(hook.Options{Dial: network.DialContext})
		defer c.Close()
		began := time.Now()
		err := c.Post(t.Context(), "user", "http://localhost/user", 30*time.Second, 1, new(any))
		if time.Since(began) != 30*time.Second || err == nil || !strings.Contains(err.Error(), "no answer within 30s") {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		gone := errors.New("the session ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if err := c.Post(ctx, "user", "http://localhost/user", 30*time.Second, 1, new(any)); !errors.Is(err, gone) {
			t.Errorf("got %v; want the cause", err)
		}
	})
}

func FuzzHostsCheck(f *testing.F) {
	f.Add("loopback, a.b, 10.0.0.0/8", "http://a.b/x")
	f.Add("*", "http://[::1%25lo]:80/")
	f.Fuzz(func(_ *testing.T, list, url string) {
		if hosts, err := hook.ParseHosts(list); err == nil {
			_ = hosts.Check(url)
		}
	})
}
