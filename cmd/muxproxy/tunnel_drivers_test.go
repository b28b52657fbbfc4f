package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestStaticServersShareTheSessions(t *testing.T) {
	a, b := freeAddr(t), freeAddr(t)
	d := startDaemon(t, tunnelEnv(t, "static", map[string]string{
		"MUXPROXY_UPSTREAM_URL": finishedModel(t), "MUXPROXY_MULTIPLEX": "2",
		"MUXPROXY_STATIC_SERVERS": fmt.Sprintf("http://%s=%[1]s,http://%s=%[2]s", a, b),
	}))
	until(t, "both servers are ready", func() bool {
		all := d.servers(t)
		return len(all) == 2 && all[0].State == "ready" && all[1].State == "ready"
	})
	sessions := d.registerAll(t, 4)
	streamAll(t, sessions)
	for _, s := range d.servers(t) {
		if s.Load != 2 || s.Driver != "static" {
			t.Errorf("got %+v; want two sessions", s)
		}
	}
	if status, body := d.post(t, "/sessions", `{"wait":0}`); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "pool_waiting") {
		t.Errorf("one too many: got %d %s; want pool_waiting", status, body)
	}
	if status, body := d.post(t, "/sessions/batch", `{"template":{},"count":5}`); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "pool_full") {
		t.Errorf("more than there could be: got %d %s; want pool_full", status, body)
	}
	d.stop(t)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// commandEnv runs a program as a tunnel that writes down its process id; the
// server's own address is its public URL.
func commandEnv(t *testing.T, pidFile string) map[string]string {
	t.Helper()
	script := `test -z "$MUXPROXY_ADMIN_TOKEN" && echo $$ >` + pidFile + `; echo "up at http://{addr}"; exec sleep 1000`
	argv, err := json.Marshal([]string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	return tunnelEnv(t, "command", map[string]string{
		"MUXPROXY_UPSTREAM_URL": finishedModel(t), "MUXPROXY_TUNNEL_COMMAND": string(argv), "MUXPROXY_ADMIN_TOKEN": "s3cr3t",
		"MUXPROXY_TUNNEL_COMMAND_URL_REGEXP": `up at (http://\S+)`,
	})
}

func runs(t *testing.T, pidFile string) bool {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestProgramThatMakesTheTunnelEndsWithTheDaemon(t *testing.T) {
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		pidFile := filepath.Join(t.TempDir(), "pid")
		d := startDaemon(t, commandEnv(t, pidFile))
		streamAll(t, d.registerAll(t, 3))
		if !runs(t, pidFile) {
			t.Error("the program does not run")
		}
		d.signal(t, end)
		_ = d.wait(t)
		until(t, "the program has ended after "+end.String(), func() bool { return !runs(t, pidFile) })
		if strings.Contains(d.Log(), "s3cr3t") {
			t.Error("the log holds the admin token")
		}
	}
}
