package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

const (
	uvicornHeader = "date: Tue, 01 Dec 2026 01:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\n" +
		"x-request-id: 0d7f4a3e9b6c4a0f8f1d2c3b4a5e6f70\r\n"
	openAIHeader = "Date: Tue, 01 Dec 2026 01:00:00 GMT\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n" +
		"openai-organization: org-1\r\nopenai-processing-ms: 412\r\nopenai-version: 2020-10-01\r\n" +
		"x-ratelimit-limit-requests: 10000\r\nx-ratelimit-limit-tokens: 30000000\r\nx-ratelimit-remaining-requests: 9999\r\n" +
		"x-ratelimit-remaining-tokens: 29999984\r\nx-ratelimit-reset-requests: 6ms\r\nx-ratelimit-reset-tokens: 0s\r\n" +
		"x-request-id: req_0d7f4a3e9b6c4a0f8f1d2c3b4a5e6f70\r\nServer: cloudflare\r\n"
)

// BenchmarkSendInMemory is what a call costs beyond its sockets, with the headers
// of usual answers.
func BenchmarkSendInMemory(b *testing.B) {
	for _, answer := range []struct{ name, header string }{{"Bare", ""}, {"Uvicorn", uvicornHeader}, {"OpenAI", openAIHeader}} {
		b.Run(answer.name, func(b *testing.B) {
			call := playing(b, answer.header)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// A field more in an answer's header is no allocation more.
func TestAllocationsDoNotGrowWithTheAnswersHeader(t *testing.T) {
	bare := testing.AllocsPerRun(200, playing(t, ""))
	// Beyond eight fields the map of them has a directory.
	if got := testing.AllocsPerRun(200, playing(t, openAIHeader)); got > bare+3 {
		t.Errorf("%v allocations with 14 fields more, %v without; want at most three more", got, bare)
	}
}

// playing gives a call over a connection in memory to a replica that answers with
// that header and 1 KB.
func playing(tb testing.TB, header string) (call func()) {
	tb.Helper()
	answer := []byte("HTTP/1.1 200 OK\r\n" + header + "Content-Length: 1024\r\n\r\n" + repeat("x", 1<<10))
	dial := func(context.Context, string, string) (net.Conn, error) { return &player{answer: answer}, nil }
	_, u := newUpstream(tb, upstream.Options{Dial: dial}, replicas("http://192.0.2.1"))
	body, buffer := []byte(repeat("x", 2<<10)), make([]byte, 2<<10)
	return func() {
		r := chat("")
		r.Body = body
		res, err := u.Send(context.Background(), r)
		if err != nil {
			tb.Fatal(err)
		}
		for err == nil {
			_, err = res.Body.Read(buffer)
		}
		if !errors.Is(err, io.EOF) {
			tb.Fatal(err)
		}
		_ = res.Body.Close()
	}
}

// player is a connection that answers each request, which comes in one piece.
type player struct {
	net.Conn
	answer, left []byte
}

func (p *player) Write(b []byte) (int, error) {
	p.left = p.answer
	return len(b), nil
}

func (p *player) Read(b []byte) (int, error) {
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

func (*player) Close() error                    { return nil }
func (*player) SetReadDeadline(time.Time) error { return nil }
