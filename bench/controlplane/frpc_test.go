package controlplane_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// sdkConfig is what Prime's SDK writes for the frpc that it starts.
const sdkConfig = `serverAddr = %q
serverPort = %d
user = %q
auth.method = "token"
auth.token = %q
metadatas.binding_secret = %q
transport.tcpMux = true
transport.tcpMuxKeepaliveInterval = 30
transport.poolCount = 10
transport.dialServerKeepalive = 60
[[proxies]]
name = %q
type = "http"
localIP = "127.0.0.1"
localPort = %s
subdomain = %q
`

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// frpc starts the real client for a tunnel as Prime's SDK would. It ends by
// itself when its first login is refused.
func frpc(t *testing.T, tunnel answer, secret, localPort string) (printed *output, kill func()) {
	t.Helper()
	binary, err := filepath.Abs("../../.bin/frpc-0.66.0")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "frpc.toml")
	text := fmt.Sprintf(sdkConfig, tunnel.Host, tunnel.Port, tunnel.ID, tunnel.Token, secret, tunnel.ID, localPort, tunnel.ID)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	process := exec.CommandContext(ctx, binary, "-c", config)
	printed = &output{}
	process.Stdout, process.Stderr = printed, printed
	if err := process.Start(); err != nil {
		t.Fatalf("%v: run \"make frpc\"", err)
	}
	kill = sync.OnceFunc(func() {
		cancel()
		_ = process.Wait()
	})
	t.Cleanup(kill)
	return printed, kill
}

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !true(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// The client that Prime's tunnels run finds in the stand-in what it expects of
// the provider.
func TestTheRealClientWorksWithTheStandIn(t *testing.T) {
	stand, err := controlplane.Start(t.Context(), controlplane.Options{}, frpstest.Options{Version: frpstest.V066, Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	defer stand.Close()
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer local.Close()
	_, port, err := net.SplitHostPort(local.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tunnel := create(t, stand.ControlPlane, nil)
	status := func() controlplane.Status { return stand.Tunnels()[0].Status }

	wrong, _ := frpc(t, tunnel, "wrong", port)
	eventually(t, "login with a wrong secret refused", func() bool {
		return strings.Contains(wrong.String(), "login to the server failed: invalid binding secret")
	})

	printed, kill := frpc(t, tunnel, tunnel.Secret, port)
	eventually(t, "proxy started", func() bool { return strings.Contains(printed.String(), "start proxy success") })
	if got := status(); got != controlplane.Connected {
		t.Errorf("got status %s; want CONNECTED", got)
	}
	transport := stand.FRPS.Transport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tunnel.URL+"/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "/hello" {
		t.Errorf("through the tunnel: got %q, %v; want /hello", body, err)
	}
	kill()
	eventually(t, "disconnected", func() bool { return status() == controlplane.Disconnected })

	ask(t, stand.ControlPlane, "key", http.MethodDelete, "/api/v1/tunnel/"+tunnel.ID, nil)
	late, _ := frpc(t, tunnel, tunnel.Secret, port)
	eventually(t, "login to a deleted tunnel refused", func() bool {
		return strings.Contains(late.String(), "login to the server failed: tunnel is inactive")
	})
	if got := stand.Counts(); got.Logins != 3 || got.LoginsRefused != 2 || got.Pings != 0 || got.WorkConns == 0 {
		t.Errorf("got %+v; want three logins, two of them refused, work connections and no pings", got)
	}
}
