package ssh_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

func TestRequestsComeThrough(t *testing.T) {
	up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(w, "%s %x %d", r.RemoteAddr, sha256.Sum256(body), len(body))
		_, _ = w.Write(body)
	}))
	c := client(t)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*i*128) // up to 500 kB
			answer, err := c.Post(up.URL(), "application/octet-stream", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = answer.Body.Close() }()
			got, err := io.ReadAll(answer.Body)
			if want := fmt.Sprintf(" %x %d%s", sha256.Sum256(body), len(body), body); err != nil || !strings.HasSuffix(string(got), want) {
				t.Errorf("%d: got %d bytes, %v; want the body and its digest", i, len(got), err)
			}
			if !strings.HasPrefix(string(got), "127.0.0.1:") || strings.HasPrefix(string(got), "127.0.0.1:0 ") {
				t.Errorf("%d: got client %q; want its address at the SSH server", i, got[:min(len(got), 20)])
			}
		})
	}
	all.Wait()
}

func TestEventsComeThroughOneByOne(t *testing.T) {
	next := make(chan struct{})
	up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 20 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-next: // the client has the event before there is another
			case <-r.Context().Done():
				t.Error(context.Cause(r.Context()))
				return
			}
		}
	}))
	answer, err := client(t).Get(up.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for i := 0; lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		if want := fmt.Sprintf("data: %d", i); lines.Text() != want {
			t.Errorf("got %q; want %q", lines.Text(), want)
		}
		i++
		next <- struct{}{}
	}
}

func TestAClientThatLeavesEndsItsCall(t *testing.T) {
	left := make(chan struct{})
	up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	answer, err := client(t).Get(up.URL())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	within(t, 5*time.Second, left)
}

func TestAClientThatOnlyStopsSendingGetsItsAnswer(t *testing.T) {
	received := make(chan struct{})
	up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // how net/http takes the end of what the client sends
		close(received)
		_, _ = io.WriteString(w, "answer")
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(up.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	_ = conn.(*net.TCPConn).CloseWrite()
	within(t, 5*time.Second, received)
	got, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(got), "answer") {
		t.Errorf("got %q, %v; want an answer", got, err)
	}
}

func TestDeadlinesWorkThroughTheTunnel(t *testing.T) {
	t.Run("write", func(t *testing.T) {
		failed := make(chan error, 1)
		up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			control, chunk := http.NewResponseController(w), make([]byte, 1<<20)
			for {
				_ = control.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				if _, err := w.Write(chunk); err != nil {
					failed <- err
					return
				}
			}
		}))
		answer, err := client(t).Get(up.URL()) // whose body nobody reads
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		select {
		case err := <-failed:
			if !os.IsTimeout(err) {
				t.Errorf("got %v; want a timeout", err)
			}
		case <-time.After(15 * time.Second):
			t.Error("a client that reads nothing was written to for 15 s")
		}
	})
	t.Run("read", func(t *testing.T) {
		up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := io.ReadAll(r.Body); !os.IsTimeout(err) {
				t.Errorf("got %v; want a timeout", err)
			}
		}))
		body, writer := io.Pipe() // never written to
		defer func() { _ = writer.Close() }()
		answer, err := client(t).Post(up.URL(), "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	})
}

func TestAStalledClientDelaysNobodyElse(t *testing.T) {
	up := open(t, options(sshdtest.Start(t)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/endless" {
			return
		}
		for chunk := make([]byte, 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	for range 8 {
		answer, err := client(t).Get(up.URL() + "/endless")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
	}
	for range 20 {
		if _, err := get(t, up.URL()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestANewConnectionDoesNotWaitForADelayedAcknowledgement(t *testing.T) {
	up := open(t, options(sshdtest.Start(t)), text("hello"))
	quickest := time.Hour
	for range 20 {
		began := time.Now()
		if _, err := get(t, up.URL()); err != nil {
			t.Fatal(err)
		}
		quickest = min(quickest, time.Since(began))
	}
	// sshd holds small packets back until the last one is acknowledged, which a
	// receiver puts off for 40 ms.
	if quickest > 30*time.Millisecond {
		t.Errorf("the quickest of 20 requests took %s", quickest)
	}
}
