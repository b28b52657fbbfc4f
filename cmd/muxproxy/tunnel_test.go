package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// tunnelEnv is the environment of a daemon with a driver, whose cache folder is
// the test's and whose health checks are quick.
func tunnelEnv(t *testing.T, driver string, more map[string]string) map[string]string {
	t.Helper()
	env := map[string]string{
		"MUXPROXY_TUNNEL": driver, "XDG_CACHE_HOME": t.TempDir(), "MUXPROXY_TUNNEL_RATE": "50/s",
		"MUXPROXY_PROBE_INTERVAL": "250ms", "MUXPROXY_PROBE_TIMEOUT": "2s",
	}
	maps.Copy(env, more)
	return env
}

func frpEnv(t *testing.T, s *frpstest.Server, model string, more map[string]string) map[string]string {
	t.Helper()
	env := tunnelEnv(t, "frp", map[string]string{
		"MUXPROXY_UPSTREAM_URL": model, "MUXPROXY_FRP_SERVER_ADDR": s.Addr(), "MUXPROXY_FRP_TOKEN": "t0ken",
		"MUXPROXY_FRP_PROXY_TYPE": "tcp", "MUXPROXY_FRP_PUBLIC_URL": s.PortURL(),
	})
	maps.Copy(env, more)
	return env
}

// until asks again and again until it is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !so(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

func (d *daemon) isReady(t *testing.T) bool {
	t.Helper()
	status, _ := d.get(t, "/readyz")
	return status == http.StatusOK
}

// listedServer is a server as GET /servers shows it.
type listedServer struct {
	ID, State, Driver, Endpoint string
	Load, Capacity              int
}

func (d *daemon) servers(t *testing.T) []listedServer {
	t.Helper()
	var list struct{ Servers []listedServer }
	d.read(t, "/servers", &list)
	return list.Servers
}

// shownSession is what the tests look at of GET /sessions/{id}.
type shownSession struct {
	State         string
	StopCondition string `json:"stop_condition"`
	Turns         int
	FailedCalls   map[string]int `json:"failed_calls"`
	Server        string
	Endpoint      struct {
		Generation    int
		OpenAIBaseURL string `json:"openai_base_url"`
	}
}

func (d *daemon) session(t *testing.T, id string) shownSession {
	t.Helper()
	var s shownSession
	d.read(t, "/sessions/"+id, &s)
	return s
}

func (d *daemon) read(t *testing.T, path string, into any) {
	t.Helper()
	status, body := d.get(t, path)
	if err := json.Unmarshal(body, into); status != http.StatusOK || err != nil {
		t.Fatalf("GET %s: got %d, %v: %s", path, status, err, body)
	}
}

// registerAll registers so many sessions at once, each by itself.
func (d *daemon) registerAll(t *testing.T, n int) []session {
	t.Helper()
	all := make([]session, n)
	var registering sync.WaitGroup
	for i := range all {
		registering.Go(func() { all[i] = d.register(t, `{"wait":"25s"}`) })
	}
	registering.Wait()
	return all
}

// streamAll makes a streamed call for each session, all at once, and checks that
// each gets its answer to the end.
func streamAll(t *testing.T, sessions []session) {
	t.Helper()
	var calls sync.WaitGroup
	for _, s := range sessions {
		calls.Go(func() {
			response := s.chat(t, streamBody)
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusOK || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
				t.Errorf("%s: got %d, %v, %q", s.ID, response.StatusCode, err, body)
			}
		})
	}
	calls.Wait()
}

func finishedModel(t *testing.T) string {
	t.Helper()
	model := newSlowModel(t)
	close(model.finish)
	return model.URL
}

func listens(t *testing.T, rawURL string) bool {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func TestSixtyFourRolloutsShareTwoTunnelsAndOutliveTheirServer(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	model := newSlowModel(t)
	d := startDaemon(t, frpEnv(t, frps, model.URL, nil))
	sessions := d.registerAll(t, 64)
	urls := make(map[string]int)
	for _, s := range sessions {
		urls[s.BaseURL]++
	}
	servers := d.servers(t)
	if len(servers) != 2 || len(urls) != 2 {
		t.Fatalf("got servers %+v and URLs %v; want two of each", servers, urls)
	}
	for _, s := range servers {
		if s.State != "ready" || s.Driver != "frp" || s.Load != 32 || s.Capacity != 32 || urls[s.Endpoint+"/v1"] != 32 {
			t.Errorf("got %+v; want it ready with 32 sessions", s)
		}
	}
	var streams []*bufio.Reader
	for _, s := range sessions {
		streams = append(streams, begin(t, s))
	}

	frps.Kill()
	for i, stream := range streams {
		if rest, err := io.ReadAll(stream); err == nil || strings.Contains(string(rest), "[DONE]") {
			t.Errorf("%s: got %q, %v; want its stream broken", sessions[i].ID, rest, err)
		}
	}
	until(t, "no call is in flight", func() bool {
		_, text := d.get(t, "/metrics")
		return strings.Contains(string(text), "\nmuxproxy_inflight_requests 0\n")
	})
	close(model.finish)
	until(t, "the daemon is not ready without frps", func() bool { return !d.isReady(t) })
	if err := frps.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "both servers are ready again", func() bool {
		all := d.servers(t)
		return len(all) == 2 && all[0].State == "ready" && all[1].State == "ready"
	})
	streamAll(t, sessions)
	for _, s := range sessions {
		if got := d.session(t, s.ID); got.State != "active" || got.Turns != 1 || got.FailedCalls["client_disconnected"] != 1 || got.Endpoint.Generation != 1 || got.Endpoint.OpenAIBaseURL != s.BaseURL {
			t.Errorf("%s: got %+v; want a call that failed and one turn, at the same endpoint", s.ID, got)
		}
	}
	if _, text := d.get(t, "/metrics"); !strings.Contains(string(text), `muxproxy_tunnel_opens_total{driver="frp",outcome="ok"} 2`) ||
		!strings.Contains(string(text), `muxproxy_pool_slots{state="used"} 64`) || strings.Contains(string(text), `muxproxy_tunnel_losses_total{driver="frp"} 1`) {
		t.Errorf("got metrics\n%s", text)
	}

	d.stop(t)
	for url := range urls {
		until(t, url+" leads nowhere", func() bool { return !listens(t, url) })
	}
}

func TestTwoHundredAndFiftySixComeAndGoAtOnce(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	d := startDaemon(t, frpEnv(t, frps, finishedModel(t), map[string]string{"MUXPROXY_POOL_IDLE": "100ms"}))
	for range 2 {
		sessions := d.registerAll(t, 256)
		servers := d.servers(t)
		if len(servers) != 8 {
			t.Errorf("got %d servers; want 8", len(servers))
		}
		for _, s := range servers {
			if s.Load != 32 {
				t.Errorf("got %+v; want 32 sessions", s)
			}
		}
		var ends sync.WaitGroup
		for _, s := range sessions {
			ends.Go(func() {
				if status, body := d.do(t, http.MethodDelete, "/sessions/"+s.ID+"?purge=true", ""); status != http.StatusOK {
					t.Errorf("%s: got %d %s", s.ID, status, body)
				}
			})
		}
		ends.Wait()
		until(t, "one empty server is left", func() bool {
			all := d.servers(t)
			return len(all) == 1 && all[0].Load == 0 && all[0].State == "ready"
		})
	}
	d.stop(t)
}

func TestStreamFinishesThroughItsTunnelDuringTheShutdown(t *testing.T) {
	frps := frpstest.New(t, frpstest.Options{Token: "t0ken"})
	model := newSlowModel(t)
	d := startDaemon(t, frpEnv(t, frps, model.URL, nil))
	s := d.register(t, `{"id":"r"}`)
	stream := begin(t, s)
	d.signal(t, syscall.SIGTERM)
	d.waitUntilDraining(t)
	refused := s.chat(t, streamBody)
	_ = refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
		t.Errorf("new call: got %d %v; want 503 through the tunnel", refused.StatusCode, refused.Header)
	}
	close(model.finish)
	if rest, err := io.ReadAll(stream); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the stream's end: got %q and %v; want a clean one", rest, err)
	}
	if err := d.wait(t); err != nil {
		t.Errorf("got %v; want exit code 0:\n%s", err, d.Log())
	}
	until(t, "the tunnel has gone", func() bool { return !listens(t, s.BaseURL) })
}

func TestClientThatLeavesTheQueueTakesNoPlace(t *testing.T) {
	addr := freeAddr(t)
	d := startDaemon(t, tunnelEnv(t, "static", map[string]string{
		"MUXPROXY_UPSTREAM_URL": finishedModel(t), "MUXPROXY_MULTIPLEX": "1", "MUXPROXY_STATIC_SERVERS": fmt.Sprintf("http://%s=%[1]s", addr),
	}))
	d.register(t, `{"id":"first"}`)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.AdminURL+"/sessions", strings.NewReader(`{"id":"left"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		left <- err
	}()
	waiting := func(n int) func() bool {
		return func() bool {
			_, text := d.get(t, "/metrics")
			return strings.Contains(string(text), fmt.Sprintf("\nmuxproxy_pool_waiting %d\n", n))
		}
	}
	until(t, "the second waits", waiting(1))
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want that it left", err)
	}
	until(t, "nobody waits", waiting(0))
	d.do(t, http.MethodDelete, "/sessions/first", "")
	streamAll(t, []session{d.register(t, `{"id":"third"}`)})
	if status, _ := d.get(t, "/sessions/left"); status != http.StatusNotFound || d.servers(t)[0].Load != 1 {
		t.Errorf("got %d and %+v; want nothing of the one that left", status, d.servers(t))
	}
	d.stop(t)
}

func TestWhatIsSaidOfThePoolIsWhatThePoolSays(t *testing.T) {
	for _, state := range tunnel.ServerStates() {
		if !slices.Contains(metrics.ServerStates(), string(state)) || !slices.Contains(admin.ServerStates(), string(state)) {
			t.Errorf("state %s is not known to the metrics or the admin API", state)
		}
	}
	for _, outcome := range []tunnel.Outcome{
		tunnel.OutcomeOK, tunnel.OutcomeTransient, tunnel.OutcomeRateLimited, tunnel.OutcomeQuota,
		tunnel.OutcomeAuth, tunnel.OutcomeConfig, tunnel.OutcomeNotReady, tunnel.OutcomeCancelled,
	} {
		if !slices.Contains(metrics.TunnelOutcomes(), metrics.TunnelOutcome(outcome)) {
			t.Errorf("outcome %s is not known to the metrics", outcome)
		}
	}
}
