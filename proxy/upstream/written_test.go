package upstream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// L55.
func TestWrittenBodyIsLetGoWhileTheAnswerIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name     string
		secure   bool
		viaProxy bool
		size     int
	}{
		{name: "short", size: 2 << 10},
		{name: "long", size: 1 << 20},
		{name: "short through a proxy", viaProxy: true, size: 2 << 10},
		{name: "long through a proxy", viaProxy: true, size: 1 << 20},
		{name: "long over TLS", secure: true, size: 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			release := make(chan struct{})
			var server *httptest.Server
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				if n != int64(c.size) {
					t.Errorf("%d bytes arrived, want %d", n, c.size)
				}
				<-release
				_, _ = io.WriteString(w, "{}")
			})
			var options upstream.Options
			if c.secure {
				server, options = secure(t, handler, false)
			} else {
				server = serve(t, handler)
			}
			if c.viaProxy {
				options.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(server.URL) }
			}
			_, u := newUpstream(t, options, replicas(server.URL))

			written := make(chan struct{})
			body, answered := sendWritten(t, u, c.size, func() { close(written) })
			<-written
			for end := time.Now().Add(10 * time.Second); body.Value() != nil; runtime.Gosched() {
				runtime.GC()
				if time.Now().After(end) {
					t.Fatal("the body is kept while the answer is waited for")
				}
			}
			close(release)
			<-answered
		})
	}
}

// sendWritten begins a call that alone has its body.
func sendWritten(t *testing.T, u *upstream.Upstream, size int, written func()) (weak.Pointer[byte], <-chan struct{}) {
	t.Helper()
	body := make([]byte, size)
	kept := weak.Make(&body[0])
	done := make(chan struct{})
	r := &upstream.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Body: body, Caller: caller{written: written}}
	go func() {
		defer close(done)
		res, err := u.Send(context.Background(), r)
		if err != nil {
			t.Errorf("send: %v", err)
			return
		}
		finish(t, res)
	}()
	return kept, done
}

// Over HTTP/2 the replica may ask for a request again that it has not begun with,
// so it is kept until the answer begins.
func TestWrittenIsToldOnce(t *testing.T) {
	plain := serve(t, answer)
	old, options := secure(t, http.HandlerFunc(answer), false)
	multiplexed, options2 := secure(t, http.HandlerFunc(answer), true)
	for _, c := range []struct {
		name, url string
		options   upstream.Options
	}{{"HTTP/1.1", plain.URL, upstream.Options{}}, {"TLS", old.URL, options}, {"HTTP/2", multiplexed.URL, options2}} {
		_, u := newUpstream(t, c.options, replicas("http://"+closedAddr(t), c.url))
		for _, size := range []int{0, 10, 64 << 10, 1 << 20} {
			var told atomic.Int64
			done := make(chan struct{})
			r := chat(repeat("x", size))
			r.Caller = caller{written: func() {
				told.Add(1)
				close(done)
			}}
			send(t, u, r)
			<-done
			if told.Load() != 1 || r.Body != nil {
				t.Errorf("%s, %d bytes: told %d times, %d bytes kept", c.name, size, told.Load(), len(r.Body))
			}
		}
		_, nobody := newUpstream(t, upstream.Options{}, replicas("http://"+closedAddr(t)))
		r := chat("{}")
		r.Caller = caller{written: func() { t.Error("told of a call that was not sent") }}
		_, err := nobody.Send(t.Context(), r)
		wantDialError(t, err, false)
	}
}

// An answer may begin before its request has come to its end. The body is kept until
// then: whoever is told that it is written may write something else over it.
func TestABodyIsSentToItsEndThoughTheAnswerHasBegun(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // which HTTP/2 always is
		_ = control.Flush()
		got, err := io.ReadAll(r.Body)
		if other := bytes.Trim(got, "x"); err != nil || len(other) > 0 {
			t.Errorf("%d bytes came, %d of them of something else: %v", len(got), len(other), err)
		}
		_, _ = fmt.Fprint(w, len(got))
	})
	plain := serve(t, handler)
	old, options := secure(t, handler, false)
	multiplexed, options2 := secure(t, handler, true)
	for _, c := range []struct {
		name, url string
		options   upstream.Options
	}{{"HTTP/1.1", plain.URL, upstream.Options{}}, {"TLS", old.URL, options}, {"HTTP/2", multiplexed.URL, options2}} {
		t.Run(c.name, func(t *testing.T) {
			_, u := newUpstream(t, c.options, replicas(c.url))
			body := bytes.Repeat([]byte("x"), 2<<20)
			told := make(chan struct{})
			r := &upstream.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Body: body, Caller: caller{written: func() {
				copy(body, bytes.Repeat([]byte("!"), len(body)))
				close(told)
			}}}
			res, err := u.Send(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := finish(t, res), strconv.Itoa(len(body)); got != want {
				t.Errorf("%s bytes came, want %s", got, want)
			}
			<-told
		})
	}
}
