package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

func TestBodiesOverTheInflightBytesQueueAndThenAreTooMany(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("silent", hanging())
		holder, r := s.register(registry.Spec{}), s.register(registry.Spec{})
		// A stream's request may have to be sent again without asking for usage,
		// and is held until the upstream's header.
		held := strings.Replace(bodyOf(800), "openai", "silent", 1)
		held = strings.TrimSuffix(held, "}") + `,"stream":true}`
		req, leave := abandonable(holder.request(http.MethodPost, chatPath, held))
		gone := holder.leaveOnce(req, leave)

		began := time.Now()
		got := s.do(r.request(http.MethodPost, chatPath, bodyOf(300)))
		got.wantError(s.t, 429, "rate_limited")
		if took := time.Since(began); took != 10*time.Second || got.Header.Get("Retry-After") != "1" || got.Header.Get("X-Should-Retry") != "" {
			s.t.Errorf("refused after %s with %v", took, got.Header)
		}
		c := s.dial()
		began = time.Now()
		got = ask(s.t, c, bufio.NewReader(c), "POST "+chatPath+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret+"\nContent-Length: 300", "")
		got.wantError(s.t, 429, "rate_limited")
		if took := time.Since(began); took > time.Minute {
			s.t.Errorf("a body that stands still held its refusal up for %s", took)
		}
		c.Close()
		if got := s.do(r.request(http.MethodPost, chatPath, bodyOf(150))); got.StatusCode != 200 {
			s.t.Errorf("a body that fits: status %d", got.StatusCode)
		}

		answered := make(chan answer)
		go func() { answered <- s.do(r.request(http.MethodPost, chatPath, bodyOf(300))) }()
		pass(5 * time.Second)
		gone()
		if got := <-answered; got.StatusCode != 200 {
			s.t.Errorf("a body that waited: status %d, %s", got.StatusCode, got.body)
		}
		if got := s.do(r.request(http.MethodPost, chatPath, bodyOf(5000))); got.StatusCode != 200 {
			s.t.Errorf("a body over all there is, alone: status %d, %s", got.StatusCode, got.body)
		}
		r.wantTurns(3)
		s.wantIdle()
	}, func(s *settings) {
		s.proxy.MaxInflightBytes, s.proxy.AdmitTimeout = 1000, 10*time.Second
	})
}

// L55: a stream does not hold its request's bytes while it runs.
func TestStreamsDoNotHoldTheirRequestBytes(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		var open []*live
		for range 3 {
			l := r.open("stream-hang", streaming+`,"x":"`+strings.Repeat("a", 600)+`"`)
			l.event()
			open = append(open, l)
		}
		for _, l := range open {
			l.close()
		}
		s.wantIdle()
	}, func(s *settings) {
		s.proxy.MaxInflightBytes, s.proxy.AdmitTimeout = 1000, time.Second
	})
}

// Some rollouts whose uploads stand still do not hold up the others.
func TestStalledUploadsDoNotHoldUpOthers(t *testing.T) {
	bubble(t, func(s *stack) {
		slow, r := s.register(registry.Spec{}), s.register(registry.Spec{})
		var conns []net.Conn
		for i := range 64 {
			c := s.dial()
			conns = append(conns, c)
			framing := []string{"Transfer-Encoding: chunked", "Content-Encoding: gzip\nContent-Length: 1000", "Content-Length: 268435456"}[i%3]
			_, _ = io.WriteString(c, strings.ReplaceAll("POST "+chatPath+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+slow.secret+"\n"+framing+"\n\n", "\n", "\r\n"))
		}
		synctest.Wait()
		for _, req := range []*http.Request{
			r.request(http.MethodPost, chatPath, chatBody("openai", "")), r.chunked(chatPath, strings.NewReader(chatBody("openai", ""))),
			r.packed(chatPath, pack(chatBody("openai", ""))),
		} {
			began := time.Now()
			if got := s.do(req); got.StatusCode != 200 || time.Since(began) > time.Second {
				s.t.Errorf("status %d after %s", got.StatusCode, time.Since(began))
			}
		}
		for _, c := range conns {
			c.Close()
		}
		synctest.Wait()
	})
}

func TestUploadThatBreaksOffIsRecordedAsAClientThatLeft(t *testing.T) {
	for _, path := range []string{chatPath, "/v1/embeddings"} {
		for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			bubble(t, func(s *stack) {
				r := s.register(registry.Spec{})
				c := s.dial()
				_, _ = io.WriteString(c, strings.ReplaceAll("POST "+path+" HTTP/1.1\nHost: x\nAuthorization: Bearer "+r.secret+"\n"+framing+"\n\n", "\n", "\r\n")+"5\r\n{\"mod\r\n")
				synctest.Wait()
				c.Close()
				s.wantLogged(logged{Outcome: "client_disconnected", Status: 499})
				s.wantIdle()
			})
		}
	}
}

// L55: what was sent is not held while the upstream thinks.
func TestBodiesThatWereSentMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t, inMemory, func(set *settings) { set.proxy.MaxInflightBytes = 300 << 10 })
		r := s.register(registry.Spec{})
		body := chatBody("silent", `"padding":"`+strings.Repeat("x", 200<<10)+`"`)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for n := range 5 {
			req := r.request(http.MethodPost, chatPath, body).WithContext(ctx)
			calls.Go(func() {
				if res, err := s.client.Do(req); err == nil {
					res.Body.Close()
				}
			})
			if _, err := s.model.Await(t.Context(), n+1); err != nil {
				t.Error(err)
			}
		}
		cancel()
		calls.Wait()
		s.client.CloseIdleConnections()
	})
}
