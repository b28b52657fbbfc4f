package nonblock_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/nonblock"
)

// serve serves HTTP as the data plane does.
func serve(tb testing.TB, handler http.HandlerFunc) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: handler, ConnContext: nonblock.Context}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(nonblock.Listen(l)) })
	tb.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func ask(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
		tb.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func TestARequestEndsWhenItsClientLeaves(t *testing.T) {
	for name, leave := range map[string]func(c *net.TCPConn){
		"close":      func(c *net.TCPConn) { c.Close() },
		"half-close": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset":      func(c *net.TCPConn) { reset(c, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			begun, ended := make(chan struct{}), make(chan error, 1)
			addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(begun)
				<-r.Context().Done()
				ended <- context.Cause(r.Context())
			})
			c := ask(t, addr)
			<-begun
			leave(c)
			select {
			case err := <-ended:
				if err != context.Canceled { //nolint:errorlint // nothing is wrapped
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("nothing ended")
			}
		})
	}
}

func TestAConnectionServesRequestAfterRequest(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		if err := r.Context().Err(); err != nil {
			t.Error(err)
		}
	})
	c := ask(t, addr)
	r := bufio.NewReader(c)
	for range 100 {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(response.Body); string(got) != "body" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		response.Body.Close()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPipelinedRequestsAreServed(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	c := ask(t, addr)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nagain"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for _, want := range []string{"body", "again"} {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(response.Body); string(got) != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		response.Body.Close()
	}
}

func TestWhoeverWantsOneByteGetsIt(t *testing.T) {
	const text = "a line that is longer than the buffer"
	peer, conn := connect(t, nonblock.Listen)
	nonblock.Context(t.Context(), conn)
	if _, err := io.WriteString(peer, text); err != nil {
		t.Fatal(err)
	}
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(conn, 16)
	var got []byte
	for {
		// After each byte there is room for one.
		if _, err := r.Peek(r.Size()); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		b, err := r.ReadByte()
		if err != nil {
			break
		}
		got = append(got, b)
	}
	if string(got) != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

func TestWhatIsToBeDoneAfterLeavingIsDoneOnce(t *testing.T) {
	for name, leave := range map[string]func(c *net.TCPConn, server *http.Server){
		"close":        func(c *net.TCPConn, _ *http.Server) { c.Close() },
		"half-close":   func(c *net.TCPConn, _ *http.Server) { _ = c.CloseWrite() },
		"reset":        func(c *net.TCPConn, _ *http.Server) { reset(c, nil) },
		"server close": func(_ *net.TCPConn, server *http.Server) { server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			begun, did, ended := make(chan struct{}), make(chan string, 9), make(chan bool, 2)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{ConnContext: nonblock.Context, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				kept := nonblock.AfterLeave(r.Context(), func() { did <- "what was stopped" })
				if !kept() {
					t.Error("it was too late to stop it")
				}
				first := nonblock.AfterLeave(r.Context(), func() { did <- "first" })
				second := nonblock.AfterLeave(r.Context(), func() { did <- "second" })
				close(begun)
				<-r.Context().Done()
				nonblock.AfterLeave(r.Context(), func() { did <- "late" })
				ended <- first()
				ended <- second()
			})}
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(nonblock.Listen(l)) })
			defer serving.Wait()
			defer server.Close()
			c := ask(t, l.Addr().String())
			<-begun
			leave(c, server)
			for range cap(ended) {
				if <-ended {
					t.Error("it is said to have been stopped")
				}
			}
			got := []string{<-did, <-did, <-did}
			slices.Sort(got)
			if want := []string{"first", "late", "second"}; !slices.Equal(got, want) || len(did) > 0 {
				t.Errorf("got %q and %d more; want %q", got, len(did), want)
			}
		})
	}
}

// TestARequestHasOneGoroutine counts what net/http alone makes two of.
func TestARequestHasOneGoroutine(t *testing.T) {
	const n = 50
	want := n + 1 // who watches for leaves
	if !watches(t) {
		want += n
	}
	var begun sync.WaitGroup
	begun.Add(n)
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		begun.Done()
		<-r.Context().Done()
	})
	want += runtime.NumGoroutine()
	for range n {
		ask(t, addr)
	}
	begun.Wait()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > want && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if got := runtime.NumGoroutine(); got > want {
		t.Errorf("got %d goroutines; want %d at most", got, want)
	}
}

// watches says whether there are such connections here.
func watches(tb testing.TB) bool {
	tb.Helper()
	_, c := connect(tb, nonblock.Listen)
	_, plain := c.(*net.TCPConn)
	return !plain
}
