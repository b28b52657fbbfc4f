package upstream_test

import (
	"bufio"
	"io"
	"net"
	"runtime"
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

// A call takes no goroutine and few allocations, those of its answer included.
func TestCostOfACall(t *testing.T) {
	const size = 2 << 10
	config := replicas(rawServer(t, func(_ int, conn net.Conn) { answerRequestsOf(conn, size) }))
	set, u := newUpstream(t, upstream.Options{}, config)
	defer set.Close()
	body := []byte(repeat("x", size))
	buffer := make([]byte, size)
	before := 0
	allocations := testing.AllocsPerRun(200, func() {
		r := chat("")
		r.Body = body
		res, err := u.Send(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = res.Body.Read(buffer)
		}
		_ = res.Body.Close()
		if now := runtime.NumGoroutine(); before == 0 {
			before = now
		} else if now != before {
			t.Errorf("%d goroutines, %d before", now, before)
		}
	})
	if allocations > 14 {
		t.Errorf("%v allocations a call, want at most 14", allocations)
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
