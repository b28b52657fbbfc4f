package upstream_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestHeaderOfTheAnswer(t *testing.T) {
	c := &canned{end: io.EOF, pieces: [][]byte{[]byte("HTTP/1.1 200 OK\r\ncontent-type:application/json\r\nX-REQUEST-ID: \t a b \r\nset-cookie: a\r\nSet-Cookie: b\r\n" +
		"x-empty:\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\nX-Ümlaut-less: ü\r\n\r\n0\r\n\r\n")}}
	if _, err := answered(t, c).Send(t.Context(), chat("{}")); err == nil {
		t.Error("a name that is no token was taken")
	}
	c = &canned{end: io.EOF, pieces: [][]byte{[]byte("HTTP/1.1 200 OK\r\ncontent-type:application/json\r\nX-REQUEST-ID: \t a b \r\nset-cookie: a\r\nSet-Cookie: b\r\n" +
		"x-empty:\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\nx-1st_-name: ü\r\n\r\n0\r\n\r\n")}}
	res, err := answered(t, c).Send(t.Context(), chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	finish(t, res)
	want := http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"a b"}, "Set-Cookie": {"a", "b"}, "X-Empty": {""}, "X-1st_-Name": {"ü"},
	}
	if !reflect.DeepEqual(res.Header, want) {
		t.Errorf("got %q", res.Header)
	}
	if res.Status != "200 OK" || res.Proto != "HTTP/1.1" || !res.ProtoAtLeast(1, 1) || res.ContentLength != -1 {
		t.Errorf("got %+v", res.Response)
	}
}

func TestLongHeaderOfTheAnswer(t *testing.T) {
	raw, want := []byte("HTTP/1.1 200 OK\r\n"), http.Header{"Content-Length": {"0"}, "Again": nil}
	for i := range 300 {
		value := strings.Repeat(string(rune('a'+i%26)), i*i/10) // of up to twice what is read at once
		raw = fmt.Appendf(raw, "x-field-%d: %s\r\nagain: %d\r\n", i, value, i)
		want["X-Field-"+strconv.Itoa(i)] = []string{value}
		want["Again"] = append(want["Again"], strconv.Itoa(i))
	}
	c := &canned{end: io.EOF, pieces: [][]byte{append(raw, "Content-Length: 0\r\n\r\n"...)}}
	res, err := answered(t, c).Send(t.Context(), chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	finish(t, res)
	if !reflect.DeepEqual(res.Header, want) {
		t.Errorf("got %d fields, want %d, or others than were sent", len(res.Header), len(want))
	}
}

func TestReadGivesAllChunksThatAreThere(t *testing.T) {
	c := &canned{end: io.EOF, pieces: [][]byte{
		[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc"),
		[]byte("\r\n3\r\ndef\r\n4\r\ngh"),
		[]byte("ij\r\n0\r\n\r\n"),
	}}
	res, err := answered(t, c).Send(t.Context(), chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	for i, want := range []string{"abc", "defgh", "ij"} {
		n, err := res.Body.Read(p)
		last := i == 2
		if string(p[:n]) != want || errors.Is(err, io.EOF) != last || c.reads != i+1 {
			t.Errorf("read %d gave %q, %v after %d reads of the connection", i+1, p[:n], err, c.reads)
		}
	}
	if c.closed.Load() {
		t.Error("the connection is closed before the body is, at its end")
	}
	_ = res.Body.Close()
	if _, err := res.Body.Read(p); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("reading a closed body gave %v", err)
	}
}

func TestClosingBeforeTheEnd(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		kept         bool
	}{
		{"all there", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"not there", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", false},
		{"all chunks there", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n0\r\nX: y\r\n\r\n", true},
		{"chunks not there", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n", false},
		{"malformed", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\r\n\r\n", false},
		{"until close", "HTTP/1.1 200 OK\r\n\r\nhello", false},
	} {
		conn := &canned{end: io.EOF, pieces: [][]byte{[]byte(c.answer)}}
		res, err := answered(t, conn).Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.Body.Read(make([]byte, 2)); n != 2 || err != nil {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		_ = res.Body.Close()
		if conn.closed.Load() == c.kept || conn.reads != 1 {
			t.Errorf("%s: closed is %v after %d reads", c.name, conn.closed.Load(), conn.reads)
		}
	}
}

// FuzzResponses feeds answers in pieces of any size. What the client accepts,
// net/http must accept and understand in the same way.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Slow Down\r\nretry-after: 1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2;e=1\r\nhi\r\na\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.0 200 OK\nConnection: close\nX: a\n\nuntil the end",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.0 000 \n\nHTTP/1.0 200 \n\n",
		"HTTP/1.0 200 \nTrailer:\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\nX: \tü\r\nX: b\r\n\r\nhi!",
	} {
		f.Add([]byte(seed), []byte{1, 200, 3}, uint16(7), false)
		f.Add([]byte(seed), []byte{}, uint16(512), true)
	}
	f.Fuzz(func(t *testing.T, raw, cuts []byte, size uint16, head bool) {
		method := http.MethodPost
		if head {
			method = http.MethodHead
		}
		got := understood(t, raw, cuts, int(size)+1, method)
		want := reference(raw, method)
		if len(got.body) > len(raw) {
			t.Fatalf("%d bytes of body out of %d", len(got.body), len(raw))
		}
		switch {
		case got.err == nil && want.err != nil:
			t.Fatalf("%q: got %d %q %q, net/http refuses it: %v", raw, got.status, got.header, got.body, want.err)
		case got.err == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("%q:\ngot  %+v\nwant %+v", raw, got, want)
		case got.err != nil && want.err == nil && !strict(raw):
			t.Fatalf("%q: net/http understands %d %q %q, got %v", raw, want.status, want.header, want.body, got.err)
		case got.status != 0 && want.status != 0 && !bytes.HasPrefix(want.body, got.body) && !bytes.HasPrefix(got.body, want.body):
			t.Fatalf("%q: body %q, net/http has %q", raw, got.body, want.body)
		}
	})
}

type understanding struct {
	status int
	header http.Header
	body   []byte
	err    error
}

func understood(t *testing.T, raw, cuts []byte, size int, method string) (got understanding) {
	t.Helper()
	c := &canned{end: io.EOF}
	rest := raw
	for _, cut := range cuts {
		n := min(int(cut), len(rest))
		c.pieces = append(c.pieces, bytes.Clone(rest[:n]))
		rest = rest[n:]
	}
	c.pieces = append(c.pieces, bytes.Clone(rest))
	r := chat("{}")
	r.Method = method
	res, err := answered(t, c).Send(t.Context(), r)
	if err != nil {
		return understanding{err: err}
	}
	got.status, got.header, got.body = res.StatusCode, res.Header, []byte{}
	p := make([]byte, size)
	for err == nil {
		var n int
		n, err = res.Body.Read(p)
		got.body = append(got.body, p[:n]...)
	}
	if !errors.Is(err, io.EOF) {
		got.err = err
	}
	_ = res.Body.Close()
	return got
}

// reference is what net/http makes of it.
func reference(raw []byte, method string) (want understanding) {
	r := bufio.NewReader(bytes.NewReader(raw))
	for {
		res, err := http.ReadResponse(r, &http.Request{Method: method}) //nolint:bodyclose // in memory
		if err != nil {
			return understanding{err: err}
		}
		if res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
			continue // its transport reads no body either
		}
		want.status, want.header = res.StatusCode, res.Header
		delete(want.header, "Trailer") // without chunks net/http leaves it, though none can follow
		want.body, want.err = io.ReadAll(res.Body)
		return want
	}
}

// strict reports whether there is something in raw that net/http lets pass: two
// framings, continued lines, names with spaces, a status below 100, other versions
// or control bytes.
func strict(raw []byte) bool {
	lower := bytes.ToLower(raw)
	for line := range bytes.Lines(raw) {
		if bytes.HasPrefix(line, []byte("HTTP/")) && bytes.Contains(line, []byte(" 0")) {
			return true
		}
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.ContainsAny(name, " \t") && !bytes.HasPrefix(name, []byte("HTTP/")) {
			return true
		}
	}
	versions := bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("HTTP/1.1"), nil), []byte("HTTP/1.0"), nil)
	coded := bytes.Contains(lower, []byte("transfer-encoding"))
	return coded && bytes.Contains(lower, []byte("content-length")) ||
		coded && bytes.Contains(lower, []byte("http/1.0")) || bytes.Contains(versions, []byte("HTTP/")) ||
		bytes.Contains(raw, []byte("\n ")) || bytes.Contains(raw, []byte("\n\t")) ||
		bytes.Contains(raw, []byte(" 101")) || bytes.Contains(raw, []byte("HTTP/1.1 1")) ||
		bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' && r != '\r' && r != '\n' && r != '\t' || r == 0x7f })
}
