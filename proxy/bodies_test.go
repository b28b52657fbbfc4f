package proxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

const messagesPath = "/v1/messages"

func TestBodyThatIsNoRequestIsRefused(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for _, body := range []string{
		``, ` `, `null`, `[]`, `"x"`, `1`, `{`, `{}`, `{"model":"openai"}`, `{` + user, `{` + user + `}x`, `{` + user + `,}`, `{` + user + `}{}`,
		`{"messages":null}`, `{"messages":{}}`, `{"messages":"hi"}`, `{"messages":[]}`, `{"messages":[ ]}`, `{'messages':[1]}`,
		`{` + user + `,"model":1}`, `{` + user + `,"model":["openai"]}`, `{` + user + `,"stream":"true"}`, `{` + user + `,"stream":1}`,
		`{` + user + `,"x":01}`, `{` + user + `,"x":NaN}`, "{" + user + ",\"x\":\"\n\"}", `{` + user + `,"x":"\x"}`,
		`{` + user + `,` + user + `}`, `{` + user + `,"model":"a","model":"a"}`, `{` + user + `,"model":"a","\u006dodel":"b"}`,
		`{` + user + `,"stream":true,"stream":false}`, `{` + user + `,"stream":true,"str\u0065am":true}`,
		`{"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,` + user + `}`,
	} {
		for _, path := range []string{chatPath, messagesPath} {
			got := r.do(r.request(http.MethodPost, path, body))
			if got.StatusCode != 400 || !bytes.Contains(got.body, []byte(`"code":"invalid_request"`)) || got.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s %.80s: status %d, body %s", path, body, got.StatusCode, got.body)
			}
		}
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n)
	}
	r.wantTurns(0)
	got := r.do(r.request(http.MethodPost, chatPath, `{"messages":[],"model":"a"}`))
	if !bytes.Contains(got.body, []byte(`"param":"messages"`)) {
		t.Errorf("the field at fault is not named: %s", got.body)
	}
}

// What muxproxy does not read is the upstream's business.
func TestBodyWithUnknownOddFieldsPasses(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, body := range []string{
		`{"messages":[1]}`, `{"messages":[null],"model":null,"stream":null}`, `{"messages":[{}],"x":1,"x":2,"\u0078":3}`,
		"\t\r\n {\"messages\":[{}]} \r\n", `{"messages":[{"role":"user","content":"\ud800"}],"":1,"a\"b":{"c":[1,2,{}]}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"temperature":1e400}`,
	} {
		if got := r.do(r.request(http.MethodPost, chatPath, body)); got.StatusCode != 200 || string(s.model.Last().Body) != body {
			t.Errorf("%s: status %d, went up as %s", body, got.StatusCode, s.model.Last().Body)
		}
	}
}

// R59, R60: too large is 413 in the dialect's own shape, however it is too large.
func TestBodyOverTheLimitIsTooLarge(t *testing.T) {
	const limit = 1 << 20
	s := newStack(t, func(s *settings) { s.proxy.MaxBodyBytes = limit })
	r := s.register(registry.Spec{})
	over := bodyOf(limit + 1)
	packed, bomb := pack(over), pack(bodyOf(32*limit))
	for _, path := range []string{chatPath, messagesPath, "/v1/embeddings", "/v1/messages/count_tokens"} {
		for name, req := range map[string]*http.Request{
			"by its length": r.request(http.MethodPost, path, over),
			"in chunks":     r.chunked(path, strings.NewReader(over)),
			"once unpacked": r.packed(path, bomb),
			"just unpacked": r.packed(path, packed),
		} {
			got := s.do(req)
			shape := `{"error":{"message":"`
			if strings.HasPrefix(path, messagesPath) {
				shape = `{"type":"error","error":{"type":"request_too_large","message":"`
			}
			if got.StatusCode != 413 || !strings.HasPrefix(string(got.body), shape) || !strings.Contains(string(got.body), `"code":"body_too_large"`) {
				t.Errorf("%s %s: status %d, body %s", path, name, got.StatusCode, got.body)
			}
		}
	}
	for name, req := range map[string]*http.Request{
		"by its length": r.request(http.MethodPost, chatPath, bodyOf(limit)),
		"in chunks":     r.chunked(chatPath, strings.NewReader(bodyOf(limit))),
		"once unpacked": r.packed(chatPath, pack(bodyOf(limit))),
	} {
		if got := s.do(req); got.StatusCode != 200 || len(s.model.Last().Body) != limit {
			t.Errorf("at the limit %s: status %d, body %s", name, got.StatusCode, got.body)
		}
	}
	r.wantTurns(3)
}

// bodyOf is a chat request of that many bytes.
func bodyOf(size int) string {
	const head, tail = `{"model":"openai","messages":[{"role":"user","content":"`, `"}]}`
	return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
}

func (r *rollout) chunked(path string, body io.Reader) *http.Request {
	req := r.request(http.MethodPost, path, "")
	req.Body, req.ContentLength = io.NopCloser(body), -1
	return req
}

// packed makes a request with a gzipped body.
func (r *rollout) packed(path, body string) *http.Request {
	req := r.request(http.MethodPost, path, body)
	req.Header.Set("Content-Encoding", "gzip")
	return req
}

func pack(body string) string {
	var b strings.Builder
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return b.String()
}

// R59: 32 MiB pass by default.
func TestBodyOfThirtyTwoMebibytesPasses(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for body, chunked := range map[string]bool{bodyOf(2<<20 + 1): false, bodyOf(32 << 20): true} {
		req := r.request(http.MethodPost, chatPath, body)
		if chunked {
			req = r.chunked(chatPath, strings.NewReader(body))
		}
		if got := s.do(req); got.StatusCode != 200 || string(s.model.Last().Body) != body {
			t.Errorf("status %d, %d bytes went up, want %d", got.StatusCode, len(s.model.Last().Body), len(body))
		}
	}
}

func TestGzippedRequestGoesUpDecoded(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	body := chatBody("openai", `"x":12345678901234567890`)
	for _, coding := range []string{"gzip", "GZIP", " x-gzip\t"} {
		req := r.request(http.MethodPost, chatPath, pack(body[:10])+pack(body[10:])) // two members are one body
		req.Header.Set("Content-Encoding", coding)
		got := s.do(req)
		sent := s.model.Last()
		if got.StatusCode != 200 || string(sent.Body) != body || sent.Header.Get("Content-Encoding") != "" || sent.ContentLength != int64(len(body)) {
			t.Errorf("%s: status %d, went up as %s with %v", coding, got.StatusCode, sent.Body, sent.Header)
		}
	}
	if turn := r.turns()[0]; string(turn.Request()) != body {
		t.Errorf("the turn holds %s", turn.Request())
	}
	plain := r.request(http.MethodPost, chatPath, body)
	plain.Header.Set("Content-Encoding", "identity")
	if got := s.do(plain); got.StatusCode != 200 {
		t.Errorf("identity: status %d", got.StatusCode)
	}
	for _, damaged := range []string{body, pack(body)[:20], pack(body) + "x", ""} {
		req := r.request(http.MethodPost, chatPath, damaged)
		req.Header.Set("Content-Encoding", "gzip")
		s.do(req).wantError(t, 400, "invalid_request")
	}
}

func TestOtherCodingsAreRefused(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, coding := range []string{"br", "zstd", "deflate", "gzip, br", "gzip, gzip", "x"} {
		req := r.request(http.MethodPost, chatPath, chatBody("openai", ""))
		req.Header.Set("Content-Encoding", coding)
		s.do(req).wantError(t, 415, "unsupported_media_type")
	}
	req := r.request(http.MethodPost, chatPath, chatBody("openai", ""))
	req.Header["Content-Encoding"] = []string{"gzip", "br"}
	s.do(req).wantError(t, 415, "unsupported_media_type")
}

// A trickle is an io.Reader that waits before each byte.
type trickle struct {
	rest string
	gap  time.Duration
}

func (s *trickle) Read(b []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	time.Sleep(s.gap)
	n := copy(b[:1], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func TestSlowUploadPasses(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		body := chatBody("openai", "")
		began := time.Now()
		got := s.do(r.chunked(chatPath, &trickle{body, 50 * time.Second}))
		if took := time.Since(began); got.StatusCode != 200 || took < time.Duration(len(body))*50*time.Second {
			s.t.Errorf("status %d after %s: %s", got.StatusCode, took, got.body)
		}
		r.wantTurns(1)
		synctest.Wait()
		if logs := s.logs.String(); strings.Contains(logs, "overhead_seconds") {
			s.t.Errorf("the client's slowness counts as muxproxy's own: %s", logs)
		}
	})
}

// dial connects to the data plane. It is for bubbles.
func (s *stack) dial() net.Conn {
	s.t.Helper()
	c, err := s.client.Transport.(*http.Transport).DialContext(s.t.Context(), "tcp", "memory")
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// ask writes bytes to a connection, gives their answer, and whether the
// connection can be used again.
func ask(t *testing.T, c net.Conn, r *bufio.Reader, head, body string) answer {
	t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s: %v", head, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res, b, err}
}

func TestStalledUploadIsCut(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			part := `{"model"`
			if framing[0] == 'T' {
				part = "8\r\n" + part + "\r\n"
			}
			c := s.dial()
			began := time.Now()
			got := ask(s.t, c, bufio.NewReader(c), "POST "+chatPath+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret+"\n"+framing, part)
			got.wantError(s.t, 400, "invalid_request")
			if took := time.Since(began); took > 2*time.Minute {
				s.t.Errorf("%s: cut after %s", framing, took)
			}
			c.Close()
		}
		s.wantIdle()
	})
}

// A request that is refused before its body is read does not wait for it for ever.
func TestStalledBodyOfARefusedRequestIsCut(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, head := range []string{
			"POST " + chatPath + " HTTP/1.1\nHost: x\nAuthorization: Bearer wrong", "POST /nowhere HTTP/1.1\nHost: x", "GET /healthz HTTP/1.1\nHost: x",
			"GET /v1/models HTTP/1.1\nHost: x\nAuthorization: Bearer " + r.secret, "PUT " + chatPath + " HTTP/1.1\nHost: x",
		} {
			for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
				c := s.dial()
				began := time.Now()
				got := ask(s.t, c, bufio.NewReader(c), head+"\n"+framing, "")
				if took := time.Since(began); got.StatusCode == 0 || took > 2*time.Minute {
					s.t.Errorf("%s, %s: answered %d after %s", head, framing, got.StatusCode, took)
				}
				c.Close()
			}
		}
		synctest.Wait()
	})
}

func TestKeptConnectionServesLongAfterItsLastRequest(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		c := s.dial()
		defer c.Close()
		reader := bufio.NewReader(c)
		body := chatBody("openai", "")
		head := "POST " + chatPath + " HTTP/1.1\nHost: x\nAuthorization: Bearer " + r.secret + "\nContent-Length: " + itoa(len(body))
		for _, extra := range []string{"", "", "\nExpect: 100-continue", ""} {
			pass(10 * time.Minute) // every deadline of the request before is over
			got := ask(s.t, c, reader, head+extra, body)
			if got.StatusCode == http.StatusContinue {
				res, err := http.ReadResponse(reader, nil)
				if err != nil {
					s.t.Fatalf("with %q: %v after a 100", extra, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				got.StatusCode = res.StatusCode
				res.Body.Close()
			}
			if got.StatusCode != 200 {
				s.t.Errorf("with %q: status %d, body %s", extra, got.StatusCode, got.body)
			}
		}
		r.wantTurns(4)
	})
}

func TestClientThatWaitsToBeAskedForItsBodyIsAsked(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		body := chatBody("openai", "")
		c := s.dial()
		defer c.Close()
		reader := bufio.NewReader(c)
		head := "POST " + chatPath + " HTTP/1.1\nHost: x\nContent-Length: " + itoa(len(body)) + "\nExpect: 100-continue\nAuthorization: Bearer "
		if got := ask(s.t, c, reader, head+r.secret, ""); got.StatusCode != http.StatusContinue {
			s.t.Fatalf("status %d, want 100", got.StatusCode)
		}
		_, _ = io.WriteString(c, body)
		res, err := http.ReadResponse(reader, nil)
		if err != nil || res.StatusCode != 200 {
			s.t.Fatalf("got %v, %v", res, err)
		}
		res.Body.Close()
		if v := s.model.Last().Header.Get("Expect"); v != "" {
			s.t.Errorf("Expect went up as %q", v)
		}
		refused := s.dial()
		defer refused.Close()
		ask(s.t, refused, bufio.NewReader(refused), head+"wrong", "").wantError(s.t, 401, "invalid_api_key")
	})
}
