package prime_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

// TestMain is also the main of the processes that tests kill: this binary with
// a role as its first argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "daemon" {
		daemon(os.Args[2], os.Args[3])
		return
	}
	goleak.VerifyTestMain(m)
}

// inProcess carries requests to a handler without a network, so that a test's
// time may be virtual.
type inProcess struct{ http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		defer func() {
			if err := recover(); err != nil && err != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(err)
			}
		}()
		if r.Body == nil {
			r.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		t.ServeHTTP(w, r)
		answered <- w.Result()
	}()
	select {
	case response := <-answered:
		if response == nil {
			return nil, io.EOF
		}
		return response, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// link is a connection to frps that does as the test says.
type link struct {
	tunnel.Condition

	mu     sync.Mutex
	closed bool
}

func (l *link) URL() string    { return "" }
func (l *link) Resume() string { return "" }

func (l *link) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// bench is a driver before a control plane, with links in the place of frp.
type bench struct {
	*prime.Driver
	plane  *controlplane.ControlPlane
	record *ledger.Ledger
	links  map[string]*link

	mu     sync.Mutex
	logins int
	refuse int // the first logins
}

func newBench(t *testing.T, plane controlplane.Options, dir string) *bench {
	t.Helper()
	plane.ServerHost = "frps.test"
	return newBenchBefore(t, controlplane.New(plane), dir)
}

func newBenchBefore(t *testing.T, plane *controlplane.ControlPlane, dir string) *bench {
	t.Helper()
	record, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = record.Close() })
	driver, err := prime.New(prime.Options{APIKey: "key", Ledger: record, Transport: inProcess{plane}})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Driver: driver, plane: plane, record: record, links: make(map[string]*link)}
	driver.Connect(b.login)
	return b
}

func (b *bench) login(ctx context.Context, id string) (tunnel.Tunnel, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logins++
	if b.logins <= b.refuse {
		return nil, &tunnel.AuthError{Err: io.EOF}
	}
	b.links[id] = new(link)
	return b.links[id], nil
}

// run runs the driver until stop, which waits for its end.
func (b *bench) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (b *bench) open(t *testing.T) (tunnel.Tunnel, *link) {
	t.Helper()
	opened, err := b.Open(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	all := b.plane.Tunnels()
	return opened, b.links[all[len(all)-1].ID]
}

var local = tunnel.Local{Server: "srv-1"}
