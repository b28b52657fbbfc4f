package command_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/command"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

// ssh are options for OpenSSH's client, and a server for it.
func ssh(t *testing.T) (command.Options, *sshdtest.Server) {
	t.Helper()
	sshd := sshdtest.Start(t)
	host, port, _ := net.SplitHostPort(sshd.Addr)
	return command.Options{
		Args: []string{
			"ssh", "-N", "-T", "-F", "none", "-i", sshd.UserKey, "-p", port, "-l", sshd.User,
			"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + sshd.KnownHosts,
			"-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2",
			"-R", "127.0.0.1:0:{addr}", host,
		},
		Env:      []string{"PATH=/usr/bin:/bin"},
		URL:      regexp.MustCompile(`Allocated port (\d+) for remote forward`),
		Template: "http://127.0.0.1:$1",
		Fatal:    regexp.MustCompile(`(?i)permission denied|host key verification failed|remote port forwarding failed`),
	}, sshd
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func TestARealProgramMakesARealTunnel(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "through the tunnel")
	}))
	defer server.Close()
	o, sshd := ssh(t)
	d := driver(t, o)
	up, err := d.Open(t.Context(), tunnel.Local{Addr: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, up.URL()); err != nil || got != "through the tunnel" {
		t.Errorf("got %q, %v", got, err)
	}
	sshd.Kill(t)
	within(t, 5*time.Second, up.Done())
	if !is[*tunnel.LostError](up.Err()) {
		t.Errorf("got %v; want a LostError", up.Err())
	}
	if err := up.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sshd.Restart(t)
	again, err := d.Open(t.Context(), tunnel.Local{Addr: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := get(t, again.URL()); err == nil {
		t.Errorf("closed: got %q; want no answer", got)
	}
}

func TestARealProgramIsRefused(t *testing.T) {
	o, sshd := ssh(t)
	sshdtest.Key(t, sshd.UserKey) // another one
	if err := openError(t, o); !is[*tunnel.ConfigError](err) {
		t.Errorf("got %T %v; want a ConfigError", err, err)
	}
}
