package frp_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// kind is one of the ways in which a tunnel can be made.
type kind struct {
	version, proxyType string
	plain              bool
}

func kinds() []kind {
	var all []kind
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		for _, proxyType := range []string{frp.TypeHTTP, frp.TypeTCP} {
			all = append(all, kind{version, proxyType, false}, kind{version, proxyType, true})
		}
	}
	return all
}

func (k kind) String() string {
	return fmt.Sprintf("%s/%s/plain=%t", k.version, k.proxyType, k.plain)
}

// start starts a server that insists on its token, and a driver for it.
func (k kind) start(t *testing.T) (*frpstest.Server, *frp.Driver) {
	t.Helper()
	s := frpstest.New(t, frpstest.Options{Version: k.version, Token: "sesame", AuthEverything: true})
	return s, driver(t, s, frp.Options{Token: "sesame", ProxyType: k.proxyType, PlainText: k.plain})
}

func TestRequestsAndAnswersPassUnchanged(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			body := make([]byte, 3<<20) // many windows
			_, _ = rand.Read(body)
			opened := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.RemoteAddr, "127.0.0.1:") {
					t.Errorf("the visitor's address is %s", r.RemoteAddr)
				}
				received, err := io.ReadAll(r.Body)
				if err != nil {
					t.Errorf("read request: %v", err)
				}
				_, _ = w.Write(received)
			})})
			answer, err := visitor(t, s).Post(opened.URL(), "application/octet-stream", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			back, err := io.ReadAll(answer.Body)
			if err != nil || !bytes.Equal(back, body) {
				t.Fatalf("%d of %d bytes came back, %v", len(back), len(body), err)
			}
		})
	}
}

func TestEventsArriveOneByOne(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			next := make(chan struct{})
			opened := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 20 {
					_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			})})
			answer, err := visitor(t, s).Get(opened.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			for i := range 20 {
				want := fmt.Sprintf("data: %d\n\n", i)
				event := make([]byte, len(want))
				if _, err := io.ReadFull(answer.Body, event); err != nil || string(event) != want {
					t.Fatalf("got %q, %v; want %q", event, err, want)
				}
				next <- struct{}{} // only now the next one is sent
			}
			if rest, err := io.ReadAll(answer.Body); err != nil || len(rest) > 0 {
				t.Fatalf("got %q, %v after the last event", rest, err)
			}
		})
	}
}

func TestVisitorsLeavingCancelsTheHandler(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			left := make(chan struct{})
			opened := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(left)
			})})
			answer, err := visitor(t, s).Get(opened.URL())
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			<-left
		})
	}
}

func TestVisitorsLeavingEndsALargeAnswer(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			ended := make(chan struct{})
			opened := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, _ *http.Request) {
				piece := make([]byte, 1<<20)
				for {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
					if _, err := w.Write(piece); err != nil {
						close(ended)
						return
					}
				}
			})})
			answer, err := visitor(t, s).Get(opened.URL())
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("still written to")
			}
		})
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			opened := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})})
			client := visitor(t, s)
			var visitors sync.WaitGroup
			for i := range 32 {
				visitors.Go(func() {
					for j := range 10 {
						if err := echo(client, opened.URL(), fmt.Sprintf("%d of %d", j, i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			visitors.Wait()
		})
	}
}

// echo posts the text and fails unless it comes back.
func echo(client *http.Client, url, text string) error {
	answer, err := client.Post(url, "text/plain", strings.NewReader(text))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	back, err := io.ReadAll(answer.Body)
	if err != nil || string(back) != text {
		return errors.Join(fmt.Errorf("got %d %q, want %q", answer.StatusCode, back, text), err)
	}
	return nil
}
