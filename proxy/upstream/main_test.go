package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newUpstream puts one upstream named default into a new set.
func newUpstream(tb testing.TB, o upstream.Options, c upstream.Config) (*upstream.Set, *upstream.Upstream) {
	tb.Helper()
	set := upstream.NewSet(o)
	put(tb, set, c)
	tb.Cleanup(set.Close)
	u, ok := set.Get("default")
	if !ok {
		tb.Fatal("upstream default is missing")
	}
	return set, u
}

func put(tb testing.TB, set *upstream.Set, c upstream.Config) {
	tb.Helper()
	if err := set.Put("default", c); err != nil {
		tb.Fatalf("put: %v", err)
	}
}

func replicas(urls ...string) upstream.Config {
	var c upstream.Config
	for _, u := range urls {
		c.Replicas = append(c.Replicas, upstream.ReplicaConfig{URL: u})
	}
	return c
}

func chat(body string) *upstream.Request {
	return &upstream.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Header: make(http.Header), Body: []byte(body)}
}

// caller is a Caller of functions, of which any may be nil.
type caller struct {
	written func()
	cancel  context.CancelCauseFunc
}

func (caller) Dispatching() {}

func (c caller) Written() {
	if c.written != nil {
		c.written()
	}
}

func (c caller) Cancel(cause error) {
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// finish reads an answer to its end and closes it.
func finish(tb testing.TB, res *upstream.Response) string {
	tb.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Errorf("read body: %v", err)
	}
	if err := res.Body.Close(); err != nil {
		tb.Errorf("close body: %v", err)
	}
	return string(b)
}

// send makes one call that must be answered, and gives the replica's name.
func send(tb testing.TB, u *upstream.Upstream, r *upstream.Request) (replica string, status int) {
	tb.Helper()
	res, err := u.Send(context.Background(), r)
	if err != nil {
		tb.Fatalf("send: %v", err)
	}
	finish(tb, res)
	return res.Replica, res.StatusCode
}

func serve(tb testing.TB, h http.HandlerFunc) *httptest.Server {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s
}

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, `{"ok":true}`)
}

// memory is a network in memory, for bubbles of synctest: each host is a handler
// that can be taken off and put back. Calls of dialers are counted by address.
type memory struct {
	mu     sync.Mutex
	hosts  map[string]*memoryListener
	dials  map[string]int
	silent map[string]bool // connecting neither succeeds nor fails
}

func newMemory() *memory {
	return &memory{hosts: make(map[string]*memoryListener), dials: make(map[string]int), silent: make(map[string]bool)}
}

func (m *memory) options() upstream.Options { return upstream.Options{Dial: m.dial} }

func (m *memory) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	m.mu.Lock()
	m.dials[addr]++
	l, silent := m.hosts[addr], m.silent[addr]
	m.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case l == nil:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

func (m *memory) silence(addr string, silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent[addr] = silent
}

func (m *memory) dialed(addr string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials[addr]
}

// serve answers at addr until the returned function is called.
func (m *memory) serve(addr string, h http.HandlerFunc) (stop func()) {
	l := &memoryListener{accept: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	m.hosts[addr] = l
	m.mu.Unlock()
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		if m.hosts[addr] == l {
			delete(m.hosts, addr)
		}
		m.mu.Unlock()
		_ = s.Close()
		<-done
	})
}

type memoryListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// closedAddr is an address that refuses connections.
func closedAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func state(set *upstream.Set, replica string) upstream.State {
	for _, s := range set.List() {
		for _, r := range s.Replicas {
			if r.Name == replica {
				return r.State
			}
		}
	}
	return ""
}

func inflight(set *upstream.Set) (n int) {
	for _, s := range set.List() {
		for _, r := range s.Replicas {
			n += r.Inflight
		}
	}
	return n
}

func wantDialError(tb testing.TB, err error, timeout bool) {
	tb.Helper()
	dialErr, ok := errors.AsType[*upstream.DialError](err)
	if !ok {
		tb.Fatalf("got error %v, want a DialError", err)
	}
	if dialErr.Timeout != timeout {
		tb.Errorf("got Timeout %v, want %v (%v)", dialErr.Timeout, timeout, err)
	}
}

func wantUnavailable(tb testing.TB, err error, retryAfter time.Duration) {
	tb.Helper()
	unavailable, ok := errors.AsType[*upstream.UnavailableError](err)
	if !ok || !errors.Is(err, upstream.ErrNoReplica) {
		tb.Fatalf("got error %v, want an UnavailableError", err)
	}
	if unavailable.RetryAfter != retryAfter {
		tb.Errorf("retry after %v, want %v", unavailable.RetryAfter, retryAfter)
	}
}

// counting counts connections as they are opened, and how many are open at once.
type counting struct {
	opened, open, peak atomic.Int64
	mu                 sync.Mutex
	writes             []int // sizes
}

func (c *counting) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	n := c.open.Add(1)
	for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
	}
	return &countedConn{Conn: conn, counts: c}, nil
}

type countedConn struct {
	net.Conn
	counts *counting
	once   sync.Once
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.counts.mu.Lock()
	c.counts.writes = append(c.counts.writes, len(p))
	c.counts.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.counts.open.Add(-1) })
	return c.Conn.Close()
}

func repeat(s string, size int) string { return strings.Repeat(s, size/len(s)) }
