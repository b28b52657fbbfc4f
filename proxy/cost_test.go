package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/nonblock"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// A bareStack is the data plane between a client and an upstream that allocate
// next to nothing themselves, so that what is counted is muxproxy's.
type bareStack struct {
	tb       testing.TB
	registry *registry.Registry
	secret   string
	conn     net.Conn
	reader   *bufio.Reader
	writes   *atomic.Int64 // of muxproxy, to both sides; nil where they are not counted
}

// bareModel answers every request on a connection with what answer writes.
func bareModel(tb testing.TB, answer func(w net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReaderSize(conn, 64<<10)
				for discardMessage(r) == nil {
					answer(conn)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// discardMessage reads a message whose body has a Content-Length.
func discardMessage(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")) {
			for _, c := range bytes.TrimSpace(value) {
				length = length*10 + int(c-'0')
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
	}
	_, err := r.Discard(length)
	return err
}

// countedConn counts the writes to a connection.
type countedConn struct {
	*net.TCPConn
	writes *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.TCPConn.Write(b)
}

type countedListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{conn.(*net.TCPConn), l.writes}, nil
}

// newBareStack serves and dials as the daemon does.
func newBareStack(tb testing.TB, spec registry.Spec, answer func(w net.Conn)) *bareStack {
	tb.Helper()
	return newStackOn(tb, spec, answer, nonblock.Listen, func(c *net.TCPConn) net.Conn { return c })
}

// newCountedStack counts writes, with the system calls of package net in place of the
// daemon's: a connection that counts is none that they can be made on.
func newCountedStack(tb testing.TB, spec registry.Spec, answer func(w net.Conn)) *bareStack {
	tb.Helper()
	writes := new(atomic.Int64)
	counted := func(c *net.TCPConn) net.Conn { return &countedConn{c, writes} }
	s := newStackOn(tb, spec, answer, func(l net.Listener) net.Listener { return &countedListener{l, writes} }, counted)
	s.writes = writes
	return s
}

func newStackOn(tb testing.TB, spec registry.Spec, answer func(w net.Conn), listen func(net.Listener) net.Listener, dialled func(*net.TCPConn) net.Conn) *bareStack {
	tb.Helper()
	s := &bareStack{tb: tb}
	r, err := registry.New(registry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	s.registry = r
	var dialer net.Dialer
	set := upstream.NewSet(upstream.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return dialled(conn.(*net.TCPConn)), nil
	}})
	tb.Cleanup(set.Close)
	if err := set.Put("default", upstream.Config{APIKey: upstreamKey, Replicas: []upstream.ReplicaConfig{{URL: bareModel(tb, answer)}}}); err != nil {
		tb.Fatal(err)
	}
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Sources{
		Registry: r.Stats, Upstreams: func() []metrics.UpstreamState { return []metrics.UpstreamState{{Name: "default"}} },
	})
	if err != nil {
		tb.Fatal(err)
	}
	p, err := proxy.New(proxy.Options{Registry: r, Upstreams: set, Metrics: m, Logger: zerolog.New(io.Discard)})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: p.Handler("nonce"), ConnContext: nonblock.Context}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listen(l)) })
	if s.conn, err = net.Dial("tcp", l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.conn.Close()
		server.Close()
		serving.Wait()
	})
	s.reader = bufio.NewReaderSize(s.conn, 64<<10)
	registered, err := r.Register(spec)
	if err != nil {
		tb.Fatal(err)
	}
	s.secret = registered[0].Secret
	return s
}

// lean is a chat request of about that many bytes with no header that is not needed.
func (s *bareStack) lean(size int, extra string) []byte {
	body := chatOf(size, extra)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.secret, len(body), body)
}

func chatOf(size int, extra string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"model":"m"%s}`, bytes.Repeat([]byte("word "), size/5), extra)
}

// request is one with the header that the official Python SDK sends.
func (s *bareStack) request(size int, extra string) []byte {
	body := chatOf(size, extra)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"+
		"Accept: application/json\r\nContent-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.0\r\nX-Stainless-Lang: python\r\n"+
		"X-Stainless-Package-Version: 2.8.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"+
		"X-Stainless-Runtime-Version: 3.13.5\r\nAuthorization: Bearer %s\r\nX-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\n"+
		"x-stainless-read-timeout: 600\r\nContent-Length: %d\r\n\r\n%s", s.secret, len(body), body)
}

func (s *bareStack) roundTrip(request []byte) {
	if _, err := s.conn.Write(request); err != nil {
		s.tb.Fatal(err)
	}
	if err := discardMessage(s.reader); err != nil {
		s.tb.Fatal(err)
	}
}

// jsonAnswer is a chat completion of about that many bytes.
func jsonAnswer(size int) func(net.Conn) {
	body := fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1764000000,"model":"m","choices":[{"index":0,"message":`+
		`{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":400,"completion_tokens":100,"total_tokens":500}}`,
		bytes.Repeat([]byte("word "), size/5))
	message := []byte("HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\nServer: uvicorn\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\nX-Request-Id: req_upstream\r\n\r\n" + body)
	return func(w net.Conn) { _, _ = w.Write(message) }
}

// overridden is a session whose model replaces that of every request.
func overridden() registry.Spec { return registry.Spec{Model: "Qwen/Qwen3-8B"} }

func BenchmarkJSON(b *testing.B) {
	for _, size := range []int{2 << 10, 64 << 10, 1 << 20} {
		for _, header := range []string{"lean", "sdk"} {
			b.Run(fmt.Sprintf("%dKB/%s", size>>10, header), func(b *testing.B) {
				s := newBareStack(b, overridden(), jsonAnswer(1<<10))
				request := s.lean(size, "")
				if header == "sdk" {
					request = s.request(size, "")
				}
				s.roundTrip(request)
				b.ReportAllocs()
				b.SetBytes(int64(len(request)))
				for b.Loop() {
					s.roundTrip(request)
				}
			})
		}
	}
}
