package admin_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// pipes is a listener whose connections are made in memory, so that their
// deadlines follow the bubble's time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// exchange sends raw bytes to the API on a connection of their own and returns
// the answer and how long it took.
func exchange(t *testing.T, pool admin.Pool, raw string) (status int, answer string, took time.Duration) {
	t.Helper()
	reg, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api, err := admin.New(admin.Options{Registry: reg, Upstreams: upstream.NewSet(upstream.Options{}), Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: api.Handler()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client, conn := net.Pipe()
	listener.conns <- conn
	start := time.Now()
	go func() { _, _ = io.WriteString(client, raw) }()
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	took = time.Since(start)
	client.Close()
	server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	return resp.StatusCode, string(body), took
}

func post(body string, length int) string {
	return fmt.Sprintf("POST /sessions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

func TestClientThatStallsInItsBodyIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, body, took := exchange(t, newPool(), post(`{"id": `, 100))
		if status != http.StatusRequestTimeout || !strings.Contains(body, `"code":"request_timeout"`) || took != 30*time.Second {
			t.Errorf("got %d %s after %v", status, body, took)
		}
	})
}

func TestWaitingForAPlaceOutlastsTheDeadlineOfTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := newPool()
		full.full = true
		body := `{"wait": "45s"}`
		status, answer, took := exchange(t, full, post(body, len(body)))
		if status != http.StatusServiceUnavailable || !strings.Contains(answer, `"code":"pool_waiting"`) || took != 45*time.Second {
			t.Errorf("got %d %s after %v", status, answer, took)
		}
	})
}
