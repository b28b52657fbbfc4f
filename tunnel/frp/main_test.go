package frp_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// origin is an HTTP server that is given its connections.
type origin struct {
	http  http.Server
	conns chan net.Conn
	done  chan struct{}
}

// serve returns what hands connections to a server of the handler.
func serve(t *testing.T, handler http.HandlerFunc) func(net.Conn) {
	t.Helper()
	o := &origin{http: http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, conns: make(chan net.Conn), done: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = o.http.Serve(o)
	}()
	t.Cleanup(func() {
		_ = o.http.Close()
		<-served
	})
	return func(conn net.Conn) {
		select {
		case o.conns <- conn:
		case <-o.done:
			_ = conn.Close()
		}
	}
}

func (o *origin) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

func (o *origin) Close() error {
	close(o.done)
	return nil
}

func (o *origin) Addr() net.Addr { return &net.TCPAddr{} }

// driver is one for the server, with what else is set in the options.
func driver(t *testing.T, s *frpstest.Server, o frp.Options) *frp.Driver {
	t.Helper()
	o.ServerAddr = s.Addr()
	o.PublicURL = s.SubdomainURL()
	if o.ProxyType == frp.TypeTCP {
		o.PublicURL = s.PortURL()
	}
	d, err := frp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a tunnel that is closed with the test.
func open(t *testing.T, d *frp.Driver, l tunnel.Local) tunnel.Tunnel {
	t.Helper()
	opened, err := d.Open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	closeInTheEnd(t, opened)
	return opened
}

func closeInTheEnd(t *testing.T, opened tunnel.Tunnel) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if err := opened.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// visitor is a client that finds the server's subdomains.
func visitor(t *testing.T, s *frpstest.Server) *http.Client {
	t.Helper()
	transport := s.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}
