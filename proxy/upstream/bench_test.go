package upstream_test

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// BenchmarkSend is the cost of one call with a connection that is there. The
// server allocates nothing.
func BenchmarkSend(b *testing.B) {
	for _, size := range []struct {
		name string
		body string
	}{{"2KB", repeat("x", 2<<10)}, {"64KB", repeat("x", 64<<10)}, {"1MB", repeat("x", 1<<20)}} {
		b.Run(size.name, func(b *testing.B) {
			config := replicas(rawServer(b, func(_ int, conn net.Conn) { answerRequestsOf(conn, len(size.body)) }))
			config.APIKey = "key"
			set, u := newUpstream(b, upstream.Options{}, config)
			defer set.Close()
			body := []byte(size.body)
			b.ReportAllocs()
			for b.Loop() {
				r := chat("")
				r.Body, r.Affinity = body, "group"
				res, err := u.Send(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
}

// answerRequestsOf answers requests whose bodies are size bytes.
func answerRequestsOf(conn net.Conn, size int) {
	r := bufio.NewReader(conn)
	answer := []byte(rawAnswer)
	for {
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := r.Discard(size); err != nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
