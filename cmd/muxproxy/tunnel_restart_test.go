package main_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestTunnelsComeBackUnderTheirURLsAfterAKill(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	env := frpEnv(t, frps, finishedModel(t), map[string]string{"MUXPROXY_STATE_DIR": t.TempDir(), "MUXPROXY_MULTIPLEX": "2"})
	d := startDaemon(t, env)
	sessions := d.registerAll(t, 4)
	streamAll(t, sessions)
	for turns, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		d.signal(t, end)
		_ = d.wait(t)
		d = startDaemon(t, env)
		until(t, "both servers are back", func() bool {
			all := d.servers(t)
			return len(all) == 2 && all[0].State == "ready" && all[1].State == "ready"
		})
		streamAll(t, sessions)
		for _, s := range sessions {
			if got := d.session(t, s.ID); got.State != "active" || got.Turns != turns+2 || got.Endpoint.Generation != 1 || got.Endpoint.OpenAIBaseURL != s.BaseURL {
				t.Errorf("after %s: %s: got %+v; want it at %s", end, s.ID, got, s.BaseURL)
			}
		}
	}
	d.stop(t)
}

func TestSessionsOfTunnelsThatCannotComeBackStopOrMove(t *testing.T) {
	env := commandEnv(t, filepath.Join(t.TempDir(), "pid"))
	env["MUXPROXY_STATE_DIR"] = t.TempDir()
	d := startDaemon(t, env)
	d.register(t, `{"id":"stop"}`)
	keep := d.register(t, `{"id":"keep","on_endpoint_loss":"keep"}`)
	streamAll(t, []session{keep})
	d.signal(t, syscall.SIGKILL)
	_ = d.wait(t)
	d = startDaemon(t, env)
	until(t, "one session stopped and the other moved", func() bool {
		return d.session(t, "stop").StopCondition == "tunnel_lost" && d.session(t, "keep").Endpoint.Generation == 2
	})
	moved := d.session(t, "keep")
	keep.BaseURL = moved.Endpoint.OpenAIBaseURL
	streamAll(t, []session{keep})
	d.stop(t)
}
