package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// outcome is what a caller can see of a call.
type outcome struct {
	Status   int
	Header   http.Header
	Length   int64
	Body     string
	Answered bool
	Whole    bool
}

func outcomeOf(res *http.Response, err error) outcome {
	if err != nil {
		return outcome{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	header := res.Header.Clone()
	header.Del("Date")
	return outcome{res.StatusCode, header, res.ContentLength, string(body), true, err == nil}
}

// Every fault and answer of the scripted upstream is the same through this client
// as through net/http's, in a network of memory and with time of its own.
func TestScriptedAnswersAreThoseOfNetHTTP(t *testing.T) {
	for _, name := range scripted.New().Names() {
		if strings.Contains(name, " ") {
			continue // a route, not a script
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := scripted.NewNetwork()
				server, err := scripted.Start(scripted.New(), network)
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				body := fmt.Sprintf(`{"model":%q,"messages":[],"pad":%q}`, name, repeat("x", 100<<10))

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				set, u := newUpstream(t, upstream.Options{Dial: network.DialContext}, replicas("http://scripted.test"))
				defer set.Close()
				res, err := u.Send(ctx, chat(body))
				var got outcome
				if err == nil {
					got = outcomeOf(res.Response, nil)
				}

				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				transport := &http.Transport{DialContext: network.DialContext, DisableCompression: true}
				defer transport.CloseIdleConnections()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://scripted.test/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				want := outcomeOf(transport.RoundTrip(r))
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got  %.500v\nwant %.500v", got, want)
				}
				if n := inflight(set); n != 0 {
					t.Errorf("%d in flight", n)
				}
			})
		})
	}
}

// A replica may refuse a long request before it has read it, and then close.
func TestEarlyRefusalOfALongRequest(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string
		after  func(c net.Conn, over <-chan struct{})
	}{
		{"and reads on", "HTTP/1.1 413 Too Long\r\nContent-Length: 2\r\n\r\nno", func(c net.Conn, _ <-chan struct{}) { _, _ = io.Copy(io.Discard, c) }},
		{"and does not read", "HTTP/1.1 413 Too Long\r\nContent-Length: 2\r\n\r\nno", func(_ net.Conn, over <-chan struct{}) { <-over }},
		{"and closes", "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", func(net.Conn, <-chan struct{}) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			over := make(chan struct{})
			defer close(over)
			url := rawServer(t, func(_ int, conn net.Conn) {
				if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, c.answer)
				c.after(conn, over)
			})
			var counts counting
			_, u := newUpstream(t, upstream.Options{Dial: counts.dial}, replicas(url))
			res, err := u.Send(t.Context(), chat(repeat("x", 32<<20)))
			if err != nil {
				t.Fatalf("the refusal was lost: %v", err)
			}
			if got := finish(t, res); got != "no" || res.StatusCode < 400 {
				t.Errorf("got %d %q", res.StatusCode, got)
			}
			if n := counts.open.Load(); n != 0 && c.name != "and reads on" {
				t.Errorf("%d connections are kept that the request was not wholly written to", n)
			}
		})
	}
}

func TestLongRequestThatWasReadKeepsItsConnection(t *testing.T) {
	var counts counting
	server := serve(t, answer)
	_, u := newUpstream(t, upstream.Options{Dial: counts.dial}, replicas(server.URL))
	for _, size := range []int{1, 64 << 10, 64<<10 + 1, 1 << 20, 8 << 20} {
		send(t, u, chat(repeat("x", size)))
	}
	if n := counts.opened.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// R40, R41, R42, R47.
func TestCancellingClosesTheConnection(t *testing.T) {
	left := errors.New("the harness left")
	for _, size := range []int{100, 1 << 20} {
		for _, when := range []string{"before the header", "in the body", "in the upload"} {
			synctest.Test(t, func(t *testing.T) {
				network := newMemory()
				closed := make(chan time.Time, 1)
				defer network.serve("a:80", func(w http.ResponseWriter, r *http.Request) {
					if when != "in the upload" {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					if when == "in the body" {
						w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
					}
					time.Sleep(time.Second)
					if when == "in the upload" {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					<-r.Context().Done()
					closed <- time.Now()
				})()
				set, u := newUpstream(t, network.options(), replicas("http://a"))
				ctx, cancel := context.WithCancelCause(t.Context())
				start := time.Now()
				time.AfterFunc(10*time.Second, func() { cancel(left) })
				if when == "in the upload" {
					time.AfterFunc(500*time.Millisecond, func() { cancel(left) })
				}
				res, err := u.Send(ctx, chat(repeat("x", size)))
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				if !errors.Is(err, left) {
					t.Errorf("%d bytes, cancelled %s: got %v", size, when, err)
				}
				want := 10 * time.Second
				if when == "in the upload" {
					want = time.Second // when it looks
				}
				if at := (<-closed).Sub(start); at != want {
					t.Errorf("%d bytes, cancelled %s: the replica saw it after %v", size, when, at)
				}
				if inflight(set) != 0 || state(set, "a") != upstream.StateUp {
					t.Errorf("%d in flight, replica is %s", inflight(set), state(set, "a"))
				}
				time.Sleep(time.Second) // net/http's server lingers
			})
		}
	}
}

func TestClosingWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", hold(make(chan struct{})))()
		set, u := newUpstream(t, network.options(), replicas("http://a"))
		res, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = res.Body.Close() })
		if _, err := res.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the read ended with %v", err)
		}
		synctest.Wait()
		if n := inflight(set); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

func TestIdleConnectionOnWhichSomethingCameIsNotUsed(t *testing.T) {
	idle, spoken := make(chan struct{}), make(chan struct{})
	url := rawServer(t, func(n int, conn net.Conn) {
		r := bufio.NewReader(conn)
		for readRequest(r) == nil {
			_, _ = io.WriteString(conn, rawAnswer)
			if n == 1 {
				<-idle
				_, _ = io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
				close(spoken)
			}
		}
	})
	set, u := newUpstream(t, upstream.Options{}, replicas(url))
	defer set.Close()
	send(t, u, chat("{}"))
	close(idle)
	<-spoken
	if _, status := send(t, u, chat("{}")); status != http.StatusOK {
		t.Errorf("got %d, which was said before", status)
	}
}
