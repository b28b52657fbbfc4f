package prime_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

// provider is a control plane in front of a real frps, of the release that
// Prime runs.
func provider(t *testing.T, o controlplane.Options) *controlplane.Stand {
	t.Helper()
	stand, err := controlplane.Start(t.Context(), o, frpstest.Options{Version: frpstest.V066, Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stand.Close()
		if t.Failed() {
			t.Logf("frps printed:\n%s", stand.FRPS.Output())
		}
	})
	return stand
}

// server answers the connections that a tunnel hands to it.
type server struct {
	connections chan net.Conn
	closed      chan struct{}
	close       sync.Once
}

func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.connections:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *server) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

func (s *server) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

func (s *server) serve(c net.Conn) {
	select {
	case s.connections <- c:
	case <-s.closed:
		_ = c.Close()
	}
}

// serve is the near end of a tunnel, which answers with the name.
func serve(t *testing.T, name string) tunnel.Local {
	t.Helper()
	s := &server{connections: make(chan net.Conn, 64), closed: make(chan struct{})}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.Serve(s) })
	t.Cleanup(func() {
		_ = h.Close()
		serving.Wait()
	})
	return tunnel.Local{Server: name, Addr: s.Addr().String(), Serve: s.serve}
}

// through asks a tunnel's public URL who it is, once.
func through(t *testing.T, stand *controlplane.Stand, url string) (status int, name string) {
	t.Helper()
	transport := stand.FRPS.Transport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !true(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within twenty seconds: %s", what)
		}
	}
}

func driver(t *testing.T, stand *controlplane.Stand) *prime.Driver {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d, err := prime.New(prime.Options{APIKey: "key", BaseURL: stand.BaseURL + "/api/v1/", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTunnelsCarryCallsThroughARealServer(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	d := driver(t, stand)
	a, err := d.Open(t.Context(), serve(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Open(t.Context(), serve(t, "b"))
	if err != nil {
		t.Fatal(err)
	}
	for name, opened := range map[string]tunnel.Tunnel{"a": a, "b": b} {
		if status, got := through(t, stand, opened.URL()); status != http.StatusOK || got != name {
			t.Errorf("%s: got %d %q", name, status, got)
		}
		if opened.State() != tunnel.Up {
			t.Errorf("%s: got state %s; want up", name, opened.State())
		}
	}
	for _, registered := range stand.Tunnels() {
		if registered.Status != controlplane.Connected {
			t.Errorf("%s is %s; want CONNECTED", registered.ID, registered.Status)
		}
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if status, _ := through(t, stand, a.URL()); status != http.StatusNotFound {
		t.Errorf("closed tunnel: got %d; want 404", status)
	}
	if status, got := through(t, stand, b.URL()); got != "b" {
		t.Errorf("the other tunnel: got %d %q", status, got)
	}
	if err := b.Close(t.Context()); err != nil || stand.Live() != 0 {
		t.Errorf("got %v with %d tunnels left", err, stand.Live())
	}
}

func TestAFirstLoginMayFailAFewTimes(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	stand.Fail(controlplane.Login, controlplane.Fault{Status: 500, Times: 2})
	stand.Fail(controlplane.NewProxy, controlplane.Fault{Status: 200, Body: `{"reject":true,"reject_reason":"not yet"}`, Times: 1})
	opened, err := driver(t, stand).Open(t.Context(), serve(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, got := through(t, stand, opened.URL()); got != "a" {
		t.Errorf("got %q", got)
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := stand.Counts().Created; got != 1 {
		t.Errorf("%d tunnels were made; want the one", got)
	}
}

func TestTheURLSurvivesARestartOfTheServer(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	opened, err := driver(t, stand).Open(t.Context(), serve(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	changed := opened.Changed()
	stand.FRPS.Kill()
	<-changed
	if err := stand.FRPS.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the same URL answers", func() bool {
		_, got := through(t, stand, opened.URL())
		return got == "a"
	})
	if done(opened) {
		t.Errorf("done: %v", opened.Err())
	}
	if err := opened.Close(t.Context()); err != nil || stand.Live() != 0 {
		t.Errorf("got %v with %d tunnels left", err, stand.Live())
	}
}

func TestAnExpiredTunnelIsDoneWhenItCannotLogInAgain(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	opened, err := driver(t, stand).Open(t.Context(), serve(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	stand.Expire(stand.Tunnels()[0].ID)
	if _, got := through(t, stand, opened.URL()); got != "a" {
		t.Errorf("got %q; an expired tunnel works as long as it is connected", got)
	}
	stand.FRPS.Kill()
	if err := stand.FRPS.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-opened.Done()
	if !errors.Is(opened.Err(), tunnel.ErrExpired) {
		t.Errorf("got %v; want ErrExpired", opened.Err())
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestARefusedLoginIsNoEndWhileTheControlPlaneIsAway(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	opened, err := driver(t, stand).Open(t.Context(), serve(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	stand.Fail(controlplane.Login, controlplane.Fault{Status: 200, Body: `{"reject":true,"reject_reason":"tunnel is inactive"}`})
	stand.Fail(controlplane.Get, controlplane.Fault{Status: 503})
	refused := stand.Counts().Logins + 3
	stand.FRPS.Kill()
	if err := stand.FRPS.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three logins were refused", func() bool { return stand.Counts().Logins >= refused })
	if done(opened) {
		t.Fatalf("done: %v", opened.Err())
	}
	stand.Mend()
	eventually(t, "the same URL answers", func() bool {
		_, got := through(t, stand, opened.URL())
		return got == "a"
	})
	if err := opened.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
