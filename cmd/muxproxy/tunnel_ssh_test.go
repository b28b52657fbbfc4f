package main_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

// sshEnv is the environment of a daemon whose tunnels go through this sshd.
func sshEnv(t *testing.T, sshd *sshdtest.Server) map[string]string {
	t.Helper()
	return tunnelEnv(t, "ssh", map[string]string{
		"MUXPROXY_UPSTREAM_URL": finishedModel(t), "MUXPROXY_SSH_ADDR": sshd.Addr, "MUXPROXY_SSH_USER": sshd.User,
		"MUXPROXY_SSH_KEY_FILE": sshd.UserKey, "MUXPROXY_SSH_KNOWN_HOSTS": sshd.KnownHosts,
		"MUXPROXY_SSH_REMOTE_HOST": "127.0.0.1", "MUXPROXY_SSH_PUBLIC_URL": "http://127.0.0.1:{port}",
	})
}

func TestRolloutsThroughAnSSHServerOutliveItAndLeaveNothing(t *testing.T) {
	sshd := sshdtest.Start(t)
	for name, end := range map[string]func(*daemon){
		"SIGTERM": func(d *daemon) { d.stop(t) },
		"SIGINT twice": func(d *daemon) {
			d.signal(t, syscall.SIGINT)
			_ = d.process.Signal(syscall.SIGINT) // it may have ended by then
			_ = d.wait(t)
		},
		"SIGKILL": func(d *daemon) {
			d.signal(t, syscall.SIGKILL)
			_ = d.wait(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, sshEnv(t, sshd))
			sessions := d.registerAll(t, 64)
			if servers := d.servers(t); len(servers) != 2 || servers[0].Load != 32 || servers[1].Load != 32 {
				t.Errorf("got %+v; want two full servers", servers)
			}
			streamAll(t, sessions)

			sshd.Kill(t)
			until(t, "the daemon is not ready without sshd", func() bool { return !d.isReady(t) })
			sshd.Restart(t)
			until(t, "both servers are ready again", func() bool {
				all := d.servers(t)
				return len(all) == 2 && all[0].State == "ready" && all[1].State == "ready"
			})
			streamAll(t, sessions) // at the same URLs

			end(d)
			until(t, "sshd has no connection left", func() bool { return len(sshd.Sessions(t)) == 0 })
			if listens(t, sessions[0].BaseURL) || listens(t, sessions[63].BaseURL) {
				t.Error("a port still leads somewhere")
			}
		})
	}
}

func TestAnSSHServerThatIsNotKnownIsNamedWhenRegistering(t *testing.T) {
	sshd := sshdtest.Start(t)
	env := sshEnv(t, sshd)
	env["MUXPROXY_SSH_KNOWN_HOSTS"] = write(t, "")
	d := startDaemon(t, env)
	status, body := d.post(t, "/sessions", `{}`)
	if status != 503 || !strings.Contains(string(body), `"code":"tunnel_failed"`) {
		t.Errorf("got %d %s; want tunnel_failed", status, body)
	}
	until(t, "the log says what to do", func() bool {
		return strings.Contains(d.Log(), "add this line to "+env["MUXPROXY_SSH_KNOWN_HOSTS"])
	})
	d.stop(t)
}

// A descendant of the program outlives the program, which the kernel ends with
// the daemon, until the next start.
func TestWhatAKilledDaemonsProgramLeavesEndsWithTheNextStart(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	script := `sleep 1000 & echo $! >"$1"; echo "up at http://$2"; wait`
	argv, err := json.Marshal([]string{"sh", "-c", script, "sh", pidFile, "{addr}"})
	if err != nil {
		t.Fatal(err)
	}
	env := commandEnv(t, pidFile)
	env["MUXPROXY_TUNNEL_COMMAND"] = string(argv)
	d := startDaemon(t, env)
	d.registerAll(t, 1)
	d.signal(t, syscall.SIGKILL)
	_ = d.wait(t)
	if !runs(t, pidFile) {
		t.Fatal("nothing was left, so that this test shows nothing")
	}
	env["MUXPROXY_TUNNEL_COMMAND"] = `["false", "{addr}"]`
	next := startDaemon(t, env)
	until(t, "the descendant has ended", func() bool { return !runs(t, pidFile) })
	next.stop(t)
}
