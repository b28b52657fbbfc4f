package main_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestLostEndpointStopsItsSessionsOrMovesThem(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	d := startDaemon(t, frpEnv(t, frps, finishedModel(t), map[string]string{"MUXPROXY_ENDPOINT_GRACE": "1s"}))
	stop, keep := d.register(t, `{"id":"stop"}`), d.register(t, `{"id":"keep","on_endpoint_loss":"keep"}`)
	frps.Kill()
	until(t, "the session stopped", func() bool { return d.session(t, "stop").StopCondition == "tunnel_lost" })
	if got := d.session(t, "keep"); got.State != "active" || got.Endpoint.Generation != 1 {
		t.Errorf("got %+v; want it to wait for another endpoint", got)
	}
	if err := frps.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the session moved", func() bool { return d.session(t, "keep").Endpoint.Generation == 2 })
	moved := d.session(t, "keep")
	keep.BaseURL = moved.Endpoint.OpenAIBaseURL
	streamAll(t, []session{keep})
	stop.BaseURL = keep.BaseURL // the secret is known everywhere
	refused := stop.chat(t, streamBody)
	body, _ := io.ReadAll(refused.Body)
	_ = refused.Body.Close()
	if refused.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `"stop_condition":"tunnel_lost"`) {
		t.Errorf("got %d %s; want it stopped by tunnel_lost", refused.StatusCode, body)
	}
	d.do(t, http.MethodDelete, "/sessions/stop", "")
	until(t, "the lost server has gone", func() bool { return len(d.servers(t)) == 1 })
	d.stop(t)
}

func TestProviderThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	d := startDaemon(t, frpEnv(t, frps, finishedModel(t), map[string]string{"MUXPROXY_SHUTDOWN_TIMEOUT": "1s"}))
	d.register(t, `{}`)
	frps.Freeze()
	defer frps.Thaw()
	began := time.Now()
	d.signal(t, syscall.SIGTERM)
	_ = d.wait(t) // in order or not
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %s; want at most the timeout and what is reserved for it", took)
	}
}

func TestRegistrationThatFindsNoTunnelIsToldWhy(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "another"})
	d := startDaemon(t, frpEnv(t, frps, finishedModel(t), map[string]string{"MUXPROXY_POOL_MIN": "0"}))
	status, body := d.post(t, "/sessions", `{}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(body), `"code":"tunnel_failed"`) || !strings.Contains(string(body), "token") {
		t.Errorf("got %d %s; want tunnel_failed, and why", status, body)
	}
	if d.isReady(t) {
		t.Error("the daemon is ready though it cannot place a session")
	}
	d.stop(t)
}
