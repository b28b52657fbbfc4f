package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// canned is a connection on which an answer comes in pieces, whatever is asked.
type canned struct {
	net.Conn // nil
	pieces   [][]byte
	end      error
	reads    int
	closed   atomic.Bool
}

func (c *canned) Write(b []byte) (int, error)     { return len(b), nil }
func (c *canned) Close() error                    { c.closed.Store(true); return nil }
func (c *canned) SetReadDeadline(time.Time) error { return nil }
func (c *canned) Read(p []byte) (int, error) {
	c.reads++
	for len(c.pieces) > 0 && len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	if len(c.pieces) == 0 {
		return 0, c.end
	}
	n := copy(p, c.pieces[0])
	c.pieces[0] = c.pieces[0][n:]
	return n, nil
}

// answered gives an upstream whose only connection is c.
func answered(tb testing.TB, c net.Conn) *upstream.Upstream {
	tb.Helper()
	_, u := newUpstream(tb, upstream.Options{Dial: func(context.Context, string, string) (net.Conn, error) { return c, nil }}, replicas("http://a"))
	return u
}

func TestAnswers(t *testing.T) {
	const ok, hi = "HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\n\r\nhi"
	for _, c := range []struct {
		name, method, answer string
		status               int    // 0 when there is no answer
		body                 string // as far as it came
		broken               bool   // the body
		kept                 bool   // the connection
	}{
		{"length", "", ok + hi, 200, "hi", false, true},
		{"no reason", "", "HTTP/1.1 200\r\n" + hi, 200, "hi", false, true},
		{"other reason", "", "HTTP/1.1 529 Site is overloaded\r\n" + hi, 529, "hi", false, true},
		{"bare line feeds", "", "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", 200, "hi", false, true},
		{"no body", "", ok + "Content-Length: 0\r\n\r\n", 200, "", false, true},
		{"204", "", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", false, true},
		{"304 with length", "", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, "", false, true},
		{"answer to HEAD", "HEAD", ok + "Content-Length: 9\r\n\r\n", 200, "", false, true},
		{"chunked answer to HEAD", "HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", 200, "", false, true},
		{"interim", "", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + hi, 200, "hi", false, true},
		{"interim with length", "", "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + ok + hi, 200, "hi", false, true},
		{"interim alone", "", "HTTP/1.1 100 Continue\r\n\r\n", 0, "", false, false},
		{"other protocol", "", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 0, "", false, false},
		{"connection close", "", ok + "Connection: keep-alive, Close\r\n" + hi, 200, "hi", false, false},
		{"old version", "", "HTTP/1.0 200 OK\r\n" + hi, 200, "hi", false, false},
		{"until close", "", ok + "\r\nhi", 200, "hi", false, false},
		{"cut", "", ok + "Content-Length: 3\r\n\r\nhi", 200, "hi", true, false},
		{"cut at once", "", ok + "Content-Length: 3\r\n\r\n", 200, "", true, false},
		{"more than announced", "", ok + hi + "HTTP/1.1 200 OK\r\n\r\n", 200, "hi", false, false},
		{"length twice", "", ok + "Content-Length: 2\r\n" + hi, 200, "hi", false, true},
		{"two lengths", "", ok + "Content-Length: 3\r\n" + hi, 0, "", false, false},
		{"list of lengths", "", ok + "Content-Length: 2, 2\r\n\r\nhi", 0, "", false, false},
		{"signed length", "", ok + "Content-Length: +2\r\n\r\nhi", 0, "", false, false},
		{"huge length", "", ok + "Content-Length: 9223372036854775808\r\n\r\nhi", 0, "", false, false},
		{"length and chunks", "", ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, "", false, false},
		{"unknown coding", "", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, "", false, false},
		{"chunks in the old version", "", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "", false, false},
		{"no status", "", "HTTP/1.1\r\n\r\n", 0, "", false, false},
		{"long status", "", "HTTP/1.1 2000 OK\r\n\r\n", 0, "", false, false},
		{"low status", "", "HTTP/1.1 099 OK\r\n\r\n", 0, "", false, false},
		{"HTTP/2", "", "HTTP/2.0 200 OK\r\n\r\n", 0, "", false, false},
		{"another protocol", "", "SSH-2.0-OpenSSH_9.6\r\n", 0, "", false, false},
		{"nothing", "", "", 0, "", false, false},
		{"half a header", "", ok + "Content-Len", 0, "", false, false},
		{"space before the colon", "", ok + "Content-Length : 2\r\n\r\nhi", 0, "", false, false},
		{"continued line", "", ok + "X: a\r\n b\r\n" + hi, 0, "", false, false},
		{"no name", "", ok + ": a\r\n" + hi, 0, "", false, false},
		{"carriage return in a value", "", ok + "X: a\rb\r\n" + hi, 0, "", false, false},
		{"long field", "", ok + "X: " + strings.Repeat("a", 100<<10) + "\r\n" + hi, 200, "hi", false, true},
		{"too long field", "", ok + "X: " + strings.Repeat("a", 2<<20) + "\r\n" + hi, 0, "", false, false},
		{"too many fields", "", ok + strings.Repeat("X: a\r\n", 200<<10) + hi, 0, "", false, false},
		{"too many interim answers", "", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50<<10) + ok + hi, 0, "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) { testAnswer(t, c.method, c.answer, c.status, c.body, c.broken, c.kept) })
	}
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, chunks, body string
		broken, kept       bool
	}{
		{"one", "2\r\nhi\r\n0\r\n\r\n", "hi", false, true},
		{"several", "1\r\nh\r\n00001\r\ni\r\nA\r\n0123456789\r\n0\r\n\r\n", "hi0123456789", false, true},
		{"none", "0\r\n\r\n", "", false, true},
		{"extensions", "2;a=b;c=\"d\"\r\nhi\r\n0;last\r\n\r\n", "hi", false, true},
		{"trailers", "2\r\nhi\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", "hi", false, true},
		{"more after the end", "2\r\nhi\r\n0\r\n\r\n0\r\n\r\n", "hi", false, false},
		{"cut in data", "3\r\nhi", "hi", true, false},
		{"cut after data", "2\r\nhi\r\n", "hi", true, false},
		{"cut in a size", "2\r\nhi\r\n0", "hi", true, false},
		{"cut in the end", "2\r\nhi\r\n0\r\n", "hi", true, false},
		{"no end of line", "2\r\nhi0\r\n\r\n", "hi", true, false},
		{"bare line feed", "2\nhi\r\n0\r\n\r\n", "", true, false},
		{"no size", "\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"no hex", "2g\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"negative", "-2\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"too large", "8000000000000000\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"too many digits", "00000000000000002\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"long extension", "2;" + strings.Repeat("a", 5<<10) + "\r\nhi\r\n0\r\n\r\n", "", true, false},
		{"bad trailer", "2\r\nhi\r\n0\r\nno colon\r\n\r\n", "hi", true, false},
		{"endless trailers", "2\r\nhi\r\n0\r\n" + strings.Repeat("X: a\r\n", 300<<10) + "\r\n", "hi", true, false},
	} {
		t.Run("chunks "+c.name, func(t *testing.T) { testAnswer(t, "", chunked+c.chunks, 200, c.body, c.broken, c.kept) })
	}
}

// testAnswer tries the answer whole, and byte by byte if it is not too long.
func testAnswer(t *testing.T, method, answer string, status int, body string, broken, kept bool) {
	t.Helper()
	cuts := []int{len(answer) + 1}
	if len(answer) < 10<<10 {
		cuts = append(cuts, 1)
	}
	for _, size := range cuts {
		c := &canned{end: io.EOF}
		for i := 0; i < len(answer); i += size {
			c.pieces = append(c.pieces, []byte(answer[i:min(i+size, len(answer))]))
		}
		r := chat("{}")
		if method != "" {
			r.Method = method
		}
		res, err := answered(t, c).Send(t.Context(), r)
		if status == 0 {
			if err == nil {
				t.Fatalf("in pieces of %d: got status %d, want an error", size, res.StatusCode)
			}
			if _, ok := errors.AsType[*upstream.DialError](err); ok || errors.Is(err, io.EOF) {
				t.Errorf("in pieces of %d: got error %v", size, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("in pieces of %d: %v", size, err)
		}
		got, err := io.ReadAll(res.Body)
		if res.StatusCode != status || string(got) != body || (err != nil) != broken {
			t.Errorf("in pieces of %d: got %d, %q, %v", size, res.StatusCode, got, err)
		}
		_ = res.Body.Close()
		// Bytes that follow the answer are seen only if they came with it.
		if more := size == 1 && len(c.pieces) > 0; c.closed.Load() == kept && !more {
			t.Errorf("in pieces of %d: connection closed is %v", size, c.closed.Load())
		}
	}
}
