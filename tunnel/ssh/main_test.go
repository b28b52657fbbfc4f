package ssh_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ssh"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are for this sshd, whose tunnels it is on loopback.
func options(sshd *sshdtest.Server) ssh.Options {
	return ssh.Options{
		Addr: sshd.Addr, User: sshd.User, KeyFile: sshd.UserKey, KnownHosts: sshd.KnownHosts,
		PublicURL: "http://127.0.0.1:{port}", RemoteHost: "127.0.0.1",
	}
}

func driver(t *testing.T, o ssh.Options) *ssh.Driver {
	t.Helper()
	d, err := ssh.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a tunnel to the handler and closes it with the test.
func open(t *testing.T, o ssh.Options, h http.Handler) tunnel.Tunnel {
	t.Helper()
	return openLocal(t, o, tunnel.Local{Server: "srv-1", Serve: serve(t, h)})
}

func openLocal(t *testing.T, o ssh.Options, l tunnel.Local) tunnel.Tunnel {
	t.Helper()
	up, err := driver(t, o).Open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := up.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return up
}

// openError is why a tunnel does not come up.
func openError(t *testing.T, o ssh.Options) error {
	t.Helper()
	up, err := driver(t, o).Open(t.Context(), tunnel.Local{Serve: func(c net.Conn) { _ = c.Close() }})
	if err == nil {
		_ = up.Close(context.Background())
		t.Fatalf("got a tunnel, %s; want an error", up.URL())
	}
	return err
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// inbox is a listener whose connections come in process.
type inbox struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (i *inbox) Accept() (net.Conn, error) {
	select {
	case c := <-i.conns:
		return c, nil
	case <-i.closed:
		return nil, net.ErrClosed
	}
}

func (i *inbox) Close() error   { i.once.Do(func() { close(i.closed) }); return nil }
func (i *inbox) Addr() net.Addr { return &net.TCPAddr{} }

func (i *inbox) put(c net.Conn) {
	select {
	case i.conns <- c:
	case <-i.closed:
		_ = c.Close()
	}
}

// serve runs an HTTP server with this handler until the test ends, and returns
// what hands it connections.
func serve(t *testing.T, h http.Handler) func(net.Conn) {
	t.Helper()
	return serveBy(t, &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second})
}

func serveBy(t *testing.T, server *http.Server) func(net.Conn) {
	t.Helper()
	in := &inbox{conns: make(chan net.Conn, 256), closed: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(in) })
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return in.put
}

// text is a handler that answers with this text.
func text(answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
}

// client is one whose connections end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	answer, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// wants waits for the tunnel's state.
func wants(t *testing.T, up tunnel.Tunnel, state tunnel.State) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		changed := up.Changed()
		if up.State() == state {
			return
		}
		select {
		case <-changed:
		case <-up.Done():
			t.Fatalf("done: %v; want it %s", up.Err(), state)
		case <-timeout:
			t.Fatalf("not %s within 20 s", state)
		}
	}
}

func within(t *testing.T, limit time.Duration, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("not within %s", limit)
	}
}

// eventually waits for what other processes do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
