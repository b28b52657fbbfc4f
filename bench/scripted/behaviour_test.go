package scripted_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

func TestRequestIsRecordedAsReceived(t *testing.T) {
	u := scripted.New()
	srv, c := start(t, u)
	body := `{"model":"openai", "x":12345678901234567890}`
	for range 2 { // the second on a connection that was used before
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/chat%2Fx?a=1&a=%20", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["idempotency-key"] = []string{"k"}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(resp); err != nil {
			t.Fatal(err)
		}
	}
	all := u.Requests()
	if len(all) != 2 || u.Connections() != 1 {
		t.Fatalf("%d requests on %d connections; want 2 on 1", len(all), u.Connections())
	}
	for _, r := range all {
		if r.Path != "/v1/chat%2Fx" || r.RawQuery != "a=1&a=%20" || string(r.Body) != body || r.ContentLength != int64(len(body)) {
			t.Errorf("got %s?%s %q (%d)", r.Path, r.RawQuery, r.Body, r.ContentLength)
		}
		head := string(r.Head)
		if !strings.HasPrefix(head, "POST /v1/chat%2Fx?a=1&a=%20 HTTP/1.1\r\nHost: ") || !strings.Contains(head, "\r\nidempotency-key: k\r\n") ||
			!strings.HasSuffix(head, "\r\n\r\n") {
			t.Errorf("head %q", head)
		}
		<-r.Done()
		if _, canceled := r.Canceled(); canceled {
			t.Error("a finished request is recorded as canceled")
		}
	}
	if got, want := all[1].Sent(), int64(len(scripted.Fixture("openai/chat.json"))); got != want {
		t.Errorf("sent %d; want %d", got, want)
	}
}

func TestHeadsAreFoundBetweenChunkedBodies(t *testing.T) {
	u := scripted.New()
	srv, c := start(t, u)
	for range 3 {
		pr, pw := io.Pipe()
		go func() {
			_, _ = io.WriteString(pw, `{"model":"openai"`)
			_, _ = io.WriteString(pw, "\r\n\r\n}")
			_ = pw.Close()
		}()
		resp, err := c.Post(srv.URL, "application/json", pr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(resp); err != nil {
			t.Fatal(err)
		}
	}
	for n, r := range u.Requests() {
		if !bytes.HasPrefix(r.Head, []byte("POST / HTTP/1.1\r\n")) || r.ContentLength != -1 {
			t.Errorf("request %d: length %d, head %q", n, r.ContentLength, r.Head)
		}
	}
}

func TestClientThatLeavesIsNoticed(t *testing.T) {
	for _, model := range []string{"silent", "stream-silent", "stream-hang"} {
		t.Run(model, func(t *testing.T) {
			u := scripted.New()
			srv, c := start(t, u)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if resp, err := post(ctx, t, c, srv.URL, `{"model":"`+model+`"}`); err == nil {
					_, _ = read(resp)
				}
			}()
			all, err := u.Await(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			<-answered
			<-all[0].Done()
			if at, canceled := all[0].Canceled(); !canceled || at.Before(all[0].ReceivedAt) {
				t.Errorf("canceled %v at %v", canceled, at)
			}
		})
	}
}

func TestGateLetsEventsPassOneByOne(t *testing.T) {
	u := scripted.New()
	gate := scripted.NewGate()
	s := scripted.SSE(scripted.Fixture("framing/crlf.sse"))
	s.Step, s.FlushHeader = gate, true
	u.Script("gated", s)
	srv, c := start(t, u)
	resp, err := post(t.Context(), t, c, srv.URL, `{"model":"gated"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first, _, _ := bytes.Cut(s.Body, []byte("\r\n\r\n"))
	buf := make([]byte, len(s.Body))
	gate.Step()
	n, err := io.ReadAtLeast(resp.Body, buf, len(first)+4)
	if err != nil || n != len(first)+4 {
		t.Errorf("got %d bytes, %v; want the %d of one event", n, err, len(first)+4)
	}
	gate.Open()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || n+len(rest) != len(s.Body) {
		t.Errorf("got %d more bytes, %v", len(rest), err)
	}
}

func TestBodyIsNotReadForAnEarlyAnswer(t *testing.T) {
	u := scripted.New()
	srv, c := start(t, u)
	body := `{"model":"413-early","x":"` + strings.Repeat("x", 32<<20) + `"}`
	resp, err := post(t.Context(), t, c, srv.URL, body)
	if err == nil { // the transport may also see its write fail first
		if _, err := read(resp); err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d, %v", resp.StatusCode, err)
		}
	}
	if n := len(u.Last().Body); n > 64<<10 {
		t.Errorf("%d bytes were read", n)
	}
}

// memory serves u on an in-memory network and returns a client for it. It is for synctest bubbles: stop must be called
// inside.
func memory(t *testing.T, u *scripted.Upstream) (srv *scripted.Server, c *http.Client, stop func()) {
	t.Helper()
	network := scripted.NewNetwork()
	srv, err := scripted.Start(u, network)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: network.DialContext}
	return srv, &http.Client{Transport: tr}, func() {
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDelaysFollowVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := scripted.New()
		s := scripted.SSE(scripted.Fixture("openai/chat.sse"))
		s.Delay, s.Gap = 15*time.Minute, time.Minute
		u.Script("slow", s)
		srv, c, stop := memory(t, u)
		defer stop()
		began := time.Now()
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"slow"}`)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 15*time.Minute {
			t.Errorf("the header came after %v", waited)
		}
		got, err := read(resp)
		if err != nil || !bytes.Equal(got, s.Body) {
			t.Errorf("got %v, %q", err, got)
		}
		if waited, want := time.Since(began), 15*time.Minute+time.Duration(bytes.Count(s.Body, []byte("\n\n"))-1)*time.Minute; waited != want {
			t.Errorf("the end came after %v; want %v", waited, want)
		}
	})
}

func TestIdleConnectionIsClosedAsUvicornDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := scripted.New()
		srv, c, stop := memory(t, u)
		defer stop()
		for _, idle := range []time.Duration{4 * time.Second, 6 * time.Second, 0} {
			get(t, c, srv.URL, `{}`, scripted.Fixture("openai/chat.json"))
			<-time.After(idle)
			synctest.Wait()
		}
		if n := u.Connections(); n != 2 {
			t.Errorf("%d connections; want 2", n)
		}
	})
}

func TestNothingIsLeftAfterScriptsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := scripted.New()
		srv, c, stop := memory(t, u)
		resp, err := post(t.Context(), t, c, srv.URL, `{"model":"stream-hang"}`)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := read(resp); err == nil {
			t.Error("a stream that was cut ended cleanly")
		}
	})
}

func TestInstantAnswers(t *testing.T) {
	srv := http.Server{Handler: scripted.NewInstant()}
	network := scripted.NewNetwork()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(network) }()
	tr := &http.Transport{DialContext: network.DialContext}
	c := &http.Client{Transport: tr}
	defer func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	for model, size := range map[string]int{"json-2k": 2 << 10, "json-64k": 64 << 10, "json-1m": 1 << 20, "other": 2 << 10} {
		body := `{"model":"` + model + `","x":"` + strings.Repeat("x", 100<<10) + `"}`
		resp, err := post(t.Context(), t, c, "http://memory", body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(resp); err != nil || len(got) != size {
			t.Errorf("%s: %d bytes, %v; want %d", model, len(got), err, size)
		}
	}
	resp, err := post(t.Context(), t, c, "http://memory", `{"model":"paced-20-1000"}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(resp)
	if n := bytes.Count(got, []byte("\n\n")); err != nil || n != 23 || !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) {
		t.Errorf("%d events, %v", n, err)
	}
}
