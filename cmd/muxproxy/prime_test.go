package main_test

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// prime is Prime as the daemon sees it: a control plane in front of frps.
func prime(t *testing.T) *controlplane.Stand {
	t.Helper()
	stand, err := controlplane.Start(t.Context(), controlplane.Options{Key: "k3y"}, frpstest.Options{Version: frpstest.V066, Token: "t0ken"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stand.Close)
	return stand
}

// primeEnv names frps as the HTTP proxy, behind which the host names of its
// tunnels need no name server.
func primeEnv(t *testing.T, stand *controlplane.Stand, more map[string]string) map[string]string {
	t.Helper()
	env := tunnelEnv(t, "prime", map[string]string{
		"MUXPROXY_UPSTREAM_URL": finishedModel(t), "HTTP_PROXY": "http://" + stand.FRPS.HTTPAddr(), "MUXPROXY_MULTIPLEX": "1",
		"PRIME_API_KEY": "k3y", "PRIME_API_BASE_URL": stand.BaseURL, "PRIME_TEAM_ID": "",
	})
	maps.Copy(env, more)
	return env
}

// chatThrough makes a streamed call at the session's public URL and returns the
// answer.
func chatThrough(t *testing.T, stand *controlplane.Stand, s session) string {
	t.Helper()
	transport := stand.FRPS.Transport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodPost, s.BaseURL+"/chat/completions", strings.NewReader(streamBody))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Secret)
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestDaemonBehindPrimeDeletesItsTunnels(t *testing.T) {
	stand := prime(t)
	d := startDaemon(t, primeEnv(t, stand, nil))
	for _, s := range d.registerAll(t, 3) {
		if got := chatThrough(t, stand, s); !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("%s: got %q", s.ID, got)
		}
	}
	if got := stand.Live(); got != 3 {
		t.Errorf("got %d tunnels; want 3", got)
	}
	d.stop(t)
	if got := stand.Live(); got != 0 {
		t.Errorf("%d tunnels left; want none", got)
	}
	if strings.Contains(d.Log(), "k3y") {
		t.Error("the log holds the API key")
	}
}

// What a daemon could not delete, because it was killed, because it was told
// twice to end, or because Prime hung, the next one does.
func TestTheNextDaemonDeletesThePrimeTunnelsThatWereLeft(t *testing.T) {
	for name, end := range map[string]func(*daemon, *controlplane.Stand){
		"killed": func(d *daemon, _ *controlplane.Stand) { d.signal(t, syscall.SIGKILL) },
		"interrupted twice while Prime hangs": func(d *daemon, stand *controlplane.Stand) {
			stand.Fail(controlplane.Delete, controlplane.Fault{Hang: true})
			d.signal(t, syscall.SIGINT)
			d.waitForLine(t, `"message":"stopping"`)
			d.signal(t, syscall.SIGINT)
		},
		"told to end while Prime hangs": func(d *daemon, stand *controlplane.Stand) {
			stand.Fail(controlplane.Delete, controlplane.Fault{Hang: true})
			d.signal(t, syscall.SIGTERM)
		},
	} {
		t.Run(name, func(t *testing.T) {
			stand := prime(t)
			env := primeEnv(t, stand, map[string]string{"MUXPROXY_SHUTDOWN_TIMEOUT": "1s"})
			d := startDaemon(t, env)
			d.registerAll(t, 3)
			began := time.Now()
			end(d, stand)
			_ = d.wait(t) // in order or not
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the end took %s", took)
			}
			if got := stand.Live(); got != 3 {
				t.Fatalf("got %d tunnels; want the 3 that were left", got)
			}
			stand.Mend()
			env["MUXPROXY_POOL_MIN"] = "0"
			next := startDaemon(t, env)
			until(t, "no tunnel is left", func() bool { return stand.Live() == 0 })
			next.stop(t)
		})
	}
}

func TestSessionMovesWhenPrimeEndsItsTunnel(t *testing.T) {
	stand := prime(t)
	d := startDaemon(t, primeEnv(t, stand, nil))
	s := d.register(t, `{"id":"r","on_endpoint_loss":"keep"}`)
	stand.Expire(stand.Tunnels()[0].ID)
	stand.FRPS.Kill()
	if err := stand.FRPS.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the session moved", func() bool { return d.session(t, "r").Endpoint.Generation == 2 })
	s.BaseURL = d.session(t, "r").Endpoint.OpenAIBaseURL
	if got := chatThrough(t, stand, s); !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("got %q", got)
	}
	d.stop(t)
	if got := stand.Live(); got != 0 {
		t.Errorf("%d tunnels left; want none", got)
	}
}
