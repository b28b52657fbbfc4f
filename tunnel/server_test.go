package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// serve runs a server with this handler and shuts it down with the test.
func serve(t *testing.T, handler http.HandlerFunc) *tunnel.Server {
	t.Helper()
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
		Addr:    "127.0.0.1:0",
		Handler: func(string) http.Handler { return handler },
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
		if err := <-ran; err != nil {
			t.Errorf("Run: got %v; want nil", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func TestServerAnswersAtItsURLWithItsNonce(t *testing.T) {
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
		ID: "srv-7", Addr: "127.0.0.1:0",
		Handler: func(nonce string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, nonce) })
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(context.WithoutCancel(t.Context())) }()
	response, err := http.Get(s.URL() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if got := string(body); got != s.Nonce() || len(got) < 22 {
		t.Errorf("nonce: got %q; want %q, hard to guess", got, s.Nonce())
	}
	if s.ID() != "srv-7" || s.URL() != "http://"+s.Addr().String() {
		t.Errorf("got %s at %s; want srv-7 at the bound address %s", s.ID(), s.URL(), s.Addr())
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run after Shutdown: got %v; want nil", err)
	}
}

func TestPublicURLIsUsedAsGivenWithoutTheSlashAtItsEnd(t *testing.T) {
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
		Addr: "127.0.0.1:0", URL: "https://mux.example.net/a/",
		Handler: func(string) http.Handler { return http.NotFoundHandler() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.URL(), "https://mux.example.net/a"; got != want {
		t.Errorf("URL: got %s; want %s", got, want)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBusyPortIsAnErrorOfListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, err = tunnel.Listen(t.Context(), tunnel.ServerOptions{
		Addr:    taken.Addr().String(),
		Handler: func(string) http.Handler { return http.NotFoundHandler() },
	})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v; want an error that names %s", err, taken.Addr())
	}
}

func TestShutdownWithoutRunFreesThePort(t *testing.T) {
	options := tunnel.ServerOptions{
		Addr:    "127.0.0.1:0",
		Handler: func(string) http.Handler { return http.NotFoundHandler() },
	}
	for range 2 {
		s, err := tunnel.Listen(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		options.Addr = s.Addr().String()
		for range 2 { // twice is as good as once
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		}
	}
}

func TestRequestEndsWhenItsClientLeaves(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http looks for the end of the connection behind that of the body
		close(entered)
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL(), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-entered
		leave()
	}()
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		response.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("client: got %v; want that it has left", err)
	}
	<-ended
}

func TestDrainWaitsForCallsAndGoesOnListening(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-finish
		}
		w.WriteHeader(http.StatusNoContent)
	})
	slow := make(chan int, 1)
	go func() { slow <- status(s.URL() + "/slow") }()
	<-entered

	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	if got := status(s.URL() + "/new"); got != http.StatusNoContent {
		t.Errorf("new call while draining: got %d; want an answer", got)
	}
	select {
	case err := <-drained:
		t.Fatalf("Drain came back with %v while a call was running", err)
	default:
	}
	close(finish)
	if err := <-drained; err != nil {
		t.Errorf("Drain: %v", err)
	}
	if got := <-slow; got != http.StatusNoContent {
		t.Errorf("call in flight: got %d; want 204", got)
	}
}

func TestDrainWaitsForTheEndOfTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{Handler: func(string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		}})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error)
		go func() { served <- s.Run(t.Context()) }()
		visitor, conn := net.Pipe()
		s.Serve(conn)
		if _, err := io.WriteString(visitor, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the handler has returned and nobody reads the answer

		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Drain(impatient); err == nil {
			t.Error("drained before the answer was read")
		}
		answer, err := http.ReadResponse(bufio.NewReader(visitor), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "hello" {
			t.Errorf("got %q, %v", body, err)
		}
		_ = answer.Body.Close()
		if err := s.Drain(t.Context()); err != nil {
			t.Errorf("drain: %v", err)
		}
		if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
			t.Error(err)
		}
		_ = visitor.Close()
	})
}

func TestDrainGivesUpWithItsContextAndSaysHowManyAreLeft(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-finish
	})
	slow := make(chan int, 1)
	go func() { slow <- status(s.URL()) }()
	<-entered
	over := errors.New("budget spent")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if err := s.Drain(ctx); !errors.Is(err, over) || !strings.Contains(err.Error(), "1 calls") {
		t.Errorf("got %v; want the cause and the one call that is left", err)
	}
	close(finish)
	<-slow
}

func TestShutdownCutsWhatOutlivesItsContextAndSaysSo(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		defer close(ended)
		close(entered)
		<-r.Context().Done()
	})
	answer := make(chan int, 1)
	go func() { answer <- status(s.URL()) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 calls cut") {
		t.Errorf("got %v; want an error that says one call was cut", err)
	}
	select {
	case <-ended:
	default:
		t.Error("Shutdown came back before the handler had ended")
	}
	if got := <-answer; got != 0 {
		t.Errorf("the call that was cut: got status %d; want a broken connection", got)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
		Addr:    "127.0.0.1:0",
		Handler: func(string) http.Handler { return http.NotFoundHandler() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("got %v; want nil", err)
	}
}

func TestTooLargeHeadersAreRefused(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("a", 80<<10))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d; want 431", response.StatusCode)
	}
}

func TestHandlerPanicsAreLoggedUnderTheServersName(t *testing.T) {
	logged := make(chan string, 1)
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
		ID: "srv-2", Addr: "127.0.0.1:0", Logger: zerolog.New(lineWriter(logged)),
		Handler: func(string) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(context.WithoutCancel(t.Context())) }()
	_ = status(s.URL())
	if line := <-logged; !strings.Contains(line, "srv-2") || !strings.Contains(line, "boom") {
		t.Errorf("log: got %s; want the server's name and the panic", line)
	}
	if err := errors.Join(s.Shutdown(t.Context()), <-ran); err != nil {
		t.Error(err)
	}
}

// status is the status code of a GET, 0 when there was no answer.
func status(url string) int {
	response, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// lineWriter sends the first line written to it.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(bytes.TrimSpace(p)):
	default:
	}
	return len(p), nil
}

func ExampleListen() {
	ctx := context.Background()
	s, err := tunnel.Listen(ctx, tunnel.ServerOptions{
		Addr:    "127.0.0.1:0",
		Handler: func(string) http.Handler { return http.NotFoundHandler() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	fmt.Println(status(s.URL()))
	http.DefaultClient.CloseIdleConnections()
	fmt.Println(s.Shutdown(ctx), <-ran)
	// Output:
	// 404
	// <nil> <nil>
}
