package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// R104, L44.
func TestConnectionsArePooled(t *testing.T) {
	var counts counting
	var observed atomic.Int64
	server := serve(t, answer)
	options := upstream.Options{Dial: counts.dial, Observer: upstream.Observer{ConnectionOpened: func(string) { observed.Add(1) }}}
	_, u := newUpstream(t, options, replicas(server.URL))
	const concurrent, rounds = 256, 10
	for range rounds {
		var wg sync.WaitGroup
		for range concurrent {
			wg.Go(func() { send(t, u, chat("{}")) })
		}
		wg.Wait()
	}
	if n := counts.opened.Load(); n > 300 {
		t.Errorf("%d calls opened %d connections, want at most 300", concurrent*rounds, n)
	}
	if observed.Load() != counts.opened.Load() {
		t.Errorf("observer saw %d connections, want %d", observed.Load(), counts.opened.Load())
	}
}

func TestNeverMoreConnectionsThanConcurrentCalls(t *testing.T) {
	var counts counting
	server := serve(t, answer)
	var dials atomic.Int64
	slowly := func(ctx context.Context, network, addr string) (net.Conn, error) {
		select { // some take so long that other calls finish and begin meanwhile
		case <-time.After(time.Duration(dials.Add(1)%8) * 5 * time.Millisecond):
		case <-ctx.Done():
		}
		return counts.dial(ctx, network, addr)
	}
	_, u := newUpstream(t, upstream.Options{Dial: slowly}, replicas(server.URL))
	const concurrent = 64
	var wg sync.WaitGroup
	for range concurrent {
		wg.Go(func() {
			for range 20 {
				send(t, u, chat("{}"))
			}
		})
	}
	wg.Wait()
	if n := counts.peak.Load(); n > concurrent {
		t.Errorf("%d connections were open at once for %d concurrent calls", n, concurrent)
	}
	if n := counts.opened.Load(); n > concurrent {
		t.Errorf("%d connections were opened for %d concurrent calls", n, concurrent)
	}
}

func TestDialThatNobodyNeedsEndsWithTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", answer)()
		slow := make(chan struct{})
		var dials atomic.Int64
		options := upstream.Options{Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				<-slow
			}
			return network.dial(ctx, n, addr)
		}}
		_, u := newUpstream(t, options, replicas("http://a"))
		first, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { send(t, u, chat("{}")) }) // its dial hangs, and it is served by the first connection
		synctest.Wait()
		finish(t, first)
		wg.Wait()
		var more []*upstream.Response
		for range 2 { // the second one of these needs another connection
			wg.Go(func() {
				res, err := u.Send(t.Context(), chat("{}"))
				if err != nil {
					t.Error(err)
					return
				}
				finish(t, res)
				more = append(more, res)
			})
			synctest.Wait()
		}
		close(slow)
		wg.Wait()
		if n := dials.Load(); n > 2 || len(more) != 2 {
			t.Errorf("%d dials for two calls at once, %d answered", n, len(more))
		}
	})
}

// rawServer runs handle for every connection, numbered from 1.
func rawServer(tb testing.TB, handle func(n int, c net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(n, c)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// readRequest reads one request whole.
func readRequest(r *bufio.Reader) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err
}

const rawAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// R90, L46.
func TestGenerationThatMayHaveBegunIsNeverSentAgain(t *testing.T) {
	for _, c := range []struct{ name, header string }{
		{"plain", ""},
		{"Idempotency-Key", "Idempotency-Key"},
		{"X-Idempotency-Key", "X-Idempotency-Key"},
	} {
		for _, end := range []struct {
			name  string
			close func(net.Conn)
		}{
			{"reset", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }}, //nolint:forcetypeassert // TCP
			{"close", func(net.Conn) {}},
		} {
			t.Run(c.name+" "+end.name, func(t *testing.T) {
				var requests atomic.Int64
				url := rawServer(t, func(_ int, conn net.Conn) {
					r := bufio.NewReader(conn)
					for readRequest(r) == nil {
						if requests.Add(1) > 1 {
							end.close(conn)
							return
						}
						_, _ = io.WriteString(conn, rawAnswer)
					}
				})
				config := replicas(url, url+"/second") // it must not go there either
				config.Replicas[1].Name = "second"
				_, u := newUpstream(t, upstream.Options{}, config)
				r := func() *upstream.Request {
					r := chat("{}")
					r.Affinity = "a"
					if c.header != "" {
						r.Header.Set(c.header, "i")
					}
					return r
				}
				send(t, u, r()) // the connection is an old one when it breaks
				_, err := u.Send(t.Context(), r())
				if err == nil {
					t.Fatal("a broken call succeeded")
				}
				if _, ok := errors.AsType[*upstream.DialError](err); ok {
					t.Errorf("got %v, which says that nothing was written", err)
				}
				if n := requests.Load(); n != 2 {
					t.Errorf("the upstream saw %d requests, want 2", n)
				}
			})
		}
	}
}

func TestIdleConnectionsCloseBeforeTheServerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", answer)()
		_, u := newUpstream(t, network.options(), replicas("http://a"))
		send(t, u, chat("{}"))
		time.Sleep(3 * time.Second)
		send(t, u, chat("{}"))
		if n := network.dialed("a:80"); n != 1 {
			t.Errorf("%d connections after 3 s, want 1", n)
		}
		time.Sleep(4500 * time.Millisecond)
		send(t, u, chat("{}"))
		if n := network.dialed("a:80"); n != 2 {
			t.Errorf("%d connections after 4.5 s of silence, want 2", n)
		}
	})
}

// R107.
func TestChangedAddressIsFollowedUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("model.example:80", answer)()
		var address atomic.Value
		address.Store("192.0.2.1")
		options := network.options()
		options.LookupHost = func(_ context.Context, host string) ([]string, error) {
			if host != "model.example" {
				t.Errorf("looked up %q", host)
			}
			return []string{address.Load().(string)}, nil //nolint:forcetypeassert // set above
		}
		set, u := newUpstream(t, options, replicas("http://model.example"))
		defer run(t, set)()
		busy := func(d time.Duration) (dials int) {
			before := network.dialed("model.example:80")
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				send(t, u, chat("{}"))
			}
			return network.dialed("model.example:80") - before
		}
		if n := busy(90 * time.Second); n != 1 {
			t.Errorf("%d connections while the address stayed, want 1", n)
		}
		res, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		address.Store("192.0.2.2")
		if n := busy(60 * time.Second); n < 1 {
			t.Error("no new connection a minute after the address changed")
		}
		finish(t, res) // was in flight on the old connection
	})
}

// run runs the set until the returned function is called.
func run(tb testing.TB, set *upstream.Set) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("run: %v", err)
		}
	}
}
