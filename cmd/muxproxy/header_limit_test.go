package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// frps answers 504 by itself when a call has no header for so long.
const frpsPatience = 2 * time.Second

// behindFRPS serves the data plane through an HTTP proxy of a real frps and
// returns the secret of a session, and its base URL.
func behindFRPS(t *testing.T, frps *frpstest.Server, headerLimit time.Duration) (secret, url string) {
	t.Helper()
	model := scripted.New()
	for name, script := range map[string]scripted.Script{
		"json": scripted.JSON(scripted.Fixture("openai/chat.json")), "stream": scripted.SSE(scripted.Fixture("openai/chat-usage.sse")),
	} {
		script.Delay = 2 * frpsPatience
		model.Script(name, script)
	}
	replica := httptest.NewServer(model)
	t.Cleanup(replica.Close)
	upstreams := upstream.NewSet(upstream.Options{})
	t.Cleanup(upstreams.Close)
	if err := upstreams.Put(registry.DefaultUpstream, upstream.Config{Replicas: []upstream.ReplicaConfig{{URL: replica.URL}}}); err != nil {
		t.Fatal(err)
	}
	sessions, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	instruments, err := metrics.New(prometheus.NewRegistry(), metrics.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := proxy.New(proxy.Options{
		Registry: sessions, Upstreams: upstreams, Metrics: instruments, HeaderLimit: headerLimit, Keepalive: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{Handler: data.Handler})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- server.Run(t.Context()) }()
	driver, err := frp.New(frp.Options{ServerAddr: frps.Addr(), PublicURL: frps.SubdomainURL()})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := driver.Open(t.Context(), tunnel.Local{Server: server.ID(), Serve: server.Serve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = opened.Close(t.Context())
		_ = server.Shutdown(t.Context())
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	registered, err := sessions.Register(registry.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return registered[0].Secret, opened.URL()
}

func TestSlowAnswersPassFrpsInTime(t *testing.T) {
	t.Parallel()
	frps := frpstest.New(t, frpstest.Options{HeaderTimeout: frpsPatience})
	transport := frps.Transport()
	defer transport.CloseIdleConnections()
	for limit, want := range map[time.Duration]int{frpsPatience: http.StatusOK, 0: http.StatusGatewayTimeout} {
		secret, url := behindFRPS(t, frps, limit)
		for model, fixture := range map[string]string{"json": "openai/chat.json", "stream": "openai/chat-usage.sse"} {
			body := `{"model":"` + model + `","messages":[{"role":"user","content":"hi"}]}`
			if model == "stream" {
				body = strings.TrimSuffix(body, "}") + `,"stream":true,"stream_options":{"include_usage":true}}`
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+secret)
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != want {
				t.Errorf("%s with limit %s: got %d, %v, %q; want %d", model, limit, response.StatusCode, err, answer, want)
			}
			whole := strings.TrimLeft(strings.ReplaceAll(string(answer), ": keepalive\n", ""), " ")
			if want == http.StatusOK && (whole != string(scripted.Fixture(fixture)) || len(whole) == len(answer)) {
				t.Errorf("%s: got %q; want the answer after what a reader skips", model, answer)
			}
		}
	}
}

// What is passed through cannot begin before it is known how; the harness is told by
// muxproxy why there is no answer, and not by frps.
func TestSlowAnswersThatArePassedThroughFrpsNameItsLimit(t *testing.T) {
	t.Parallel()
	frps := frpstest.New(t, frpstest.Options{HeaderTimeout: frpsPatience})
	transport := frps.Transport()
	defer transport.CloseIdleConnections()
	secret, url := behindFRPS(t, frps, frpsPatience)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/embeddings", strings.NewReader(`{"model":"json","input":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(answer), "tunnel header budget of 2s") {
		t.Errorf("got %d, %v, %q", response.StatusCode, err, answer)
	}
}
