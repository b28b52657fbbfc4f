package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// L46.
func TestStaleIdleConnectionIsReplaced(t *testing.T) {
	var requests atomic.Int64
	url := rawServer(t, func(_ int, conn net.Conn) {
		// Every connection serves one request and then closes, saying nothing.
		if readRequest(bufio.NewReader(conn)) == nil {
			requests.Add(1)
			_, _ = io.WriteString(conn, rawAnswer)
		}
	})
	set, u := newUpstream(t, upstream.Options{}, replicas(url))
	const calls = 200
	failed := 0
	for range calls {
		res, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			failed++ // the close met a request that was already written
			continue
		}
		finish(t, res)
	}
	if got := requests.Load(); got != int64(calls-failed) {
		t.Errorf("%d calls, %d of them failed, made %d requests", calls, failed, got)
	}
	if failed > calls/4 {
		t.Errorf("%d of %d calls failed on a stale connection", failed, calls)
	}
	if n := inflight(set); n != 0 {
		t.Errorf("%d in flight after all calls ended", n)
	}
}

// closeReporting is a connection that says when it was closed.
type closeReporting struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closeReporting) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// The replica's close arrives after the idle connection was taken and before
// anything is written, a moment in which net/http does not send a POST again.
func TestNothingWrittenIsSentAgain(t *testing.T) {
	var requests, dials atomic.Int64
	hangUp := make(chan struct{})
	proxy := rawServer(t, func(_ int, conn net.Conn) {
		if readRequest(bufio.NewReader(conn)) == nil {
			requests.Add(1)
			_, _ = io.WriteString(conn, rawAnswer)
			<-hangUp
		}
	})
	var last *closeReporting
	options := upstream.Options{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			last = &closeReporting{Conn: c, closed: make(chan struct{})}
			return last, err
		},
		Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(proxy) }, // needs net/http
	}
	set, u := newUpstream(t, options, replicas("http://replica.example"))
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			closed := last.closed
			hangUp <- struct{}{}
			<-closed
		}
	}})
	const calls = 20
	for range calls {
		res, err := u.Send(ctx, chat("{}"))
		if err != nil {
			t.Fatalf("send: %v", err)
		}
		finish(t, res)
	}
	close(hangUp)
	if requests.Load() != calls || dials.Load() != calls {
		t.Errorf("%d calls made %d requests on %d connections", calls, requests.Load(), dials.Load())
	}
	if s := set.List()[0].Replicas[0]; s.State != upstream.StateUp || s.LastError != "" {
		t.Errorf("replica is %+v", s)
	}
}

// deaf is a connection that takes a number of bytes and then no more.
type deaf struct {
	net.Conn
	left int
}

func (d *deaf) Write(b []byte) (int, error) {
	if len(b) <= d.left {
		d.left -= len(b)
		return d.Conn.Write(b)
	}
	n, _ := d.Conn.Write(b[:d.left])
	d.left = 0
	_ = d.Close()
	return n, syscall.EPIPE
}

func TestOnlyWhatWasNotWrittenIsSentAgain(t *testing.T) {
	server := serve(t, answer)
	for _, size := range []int{100, 60 << 10, 70 << 10, 1 << 20} {
		body := repeat("x", size)
		for _, c := range []struct {
			name  string
			taken int // bytes of the second request
			dials int64
			fails bool
		}{
			{"nothing", 0, 2, false},
			{"one byte", 1, 1, true},
			{"the header", 150, 1, true},
		} {
			var dials atomic.Int64
			options := upstream.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				raw, err := new(net.Dialer).DialContext(ctx, network, addr)
				if dials.Add(1) > 1 || err != nil {
					return raw, err
				}
				first := len("POST /v1/chat/completions HTTP/1.1\r\nHost: \r\nAccept-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}") + len(addr)
				return &deaf{raw, first + c.taken}, nil
			}}
			set, u := newUpstream(t, options, replicas(server.URL))
			send(t, u, chat("{}"))
			res, err := u.Send(t.Context(), chat(body))
			if err == nil {
				finish(t, res)
			}
			if (err != nil) != c.fails || dials.Load() != c.dials {
				t.Errorf("%d bytes, %s written: %d dials, error %v", size, c.name, dials.Load(), err)
			}
			if _, ok := errors.AsType[*upstream.DialError](err); ok {
				t.Errorf("%d bytes, %s written: %v says that nothing was", size, c.name, err)
			}
			if n := inflight(set); n != 0 {
				t.Errorf("%d bytes, %s written: %d in flight", size, c.name, n)
			}
		}
	}
}

func TestFreshConnectionThatTakesNothingIsAFailedDial(t *testing.T) {
	server := serve(t, answer)
	for _, size := range []int{100, 1 << 20} {
		options := upstream.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &deaf{Conn: raw}, err
		}}
		set, u := newUpstream(t, options, replicas(server.URL))
		_, err := u.Send(t.Context(), chat(repeat("x", size)))
		wantDialError(t, err, false)
		if s := state(set, strings.TrimPrefix(server.URL, "http://")); s != upstream.StateDown {
			t.Errorf("replica is %s", s)
		}
	}
}

// The connection to a replica behind a proxy may be encrypted twice, and both may be on
// one host.
func TestWhatWasWrittenThroughASecureProxyIsNotSentAgain(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var requests atomic.Int64
		server, options := secure(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			requests.Add(1)
			panic(http.ErrAbortHandler)
		}), http2)
		proxy, _ := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tunnel(w, r.Host) }), true)
		options.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
		config := replicas(server.URL, server.URL+"/second")
		config.Replicas[1].Name = "second"
		_, u := newUpstream(t, options, config)
		_, err := u.Send(t.Context(), chat("{}"))
		if _, ok := errors.AsType[*upstream.DialError](err); ok || err == nil {
			t.Errorf("got %v, which does not say that it broke", err)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("the replicas saw %d requests, want 1", n)
		}
	}
}
