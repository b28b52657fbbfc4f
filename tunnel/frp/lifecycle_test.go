package frp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// patience is how long a test waits for what should take a moment.
const patience = time.Minute

// await waits for the state.
func await(t *testing.T, opened tunnel.Tunnel, want tunnel.State) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		changed := opened.Changed()
		if opened.State() == want {
			return
		}
		select {
		case <-changed:
		case <-opened.Done():
			t.Fatalf("done, %v, before it was %s", opened.Err(), want)
		case <-timer.C:
			t.Fatalf("not %s after %s", want, patience)
		}
	}
}

// hello serves a page that says hello.
func hello(t *testing.T) func(net.Conn) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
}

// answers fails unless hello is what the URL gives.
func answers(t *testing.T, client *http.Client, url string) {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil || string(page) != "hello" {
		t.Fatalf("got %d %q, %v", answer.StatusCode, page, err)
	}
}

func TestKilledServerComesBackUnderTheSameURL(t *testing.T) {
	for _, k := range kinds() {
		if k.plain {
			continue
		}
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			opened := open(t, d, tunnel.Local{Serve: hello(t)})
			client, url := visitor(t, s), opened.URL()
			answers(t, client, url)
			for range 2 {
				s.Kill()
				await(t, opened, tunnel.Reconnecting)
				if err := s.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				await(t, opened, tunnel.Up)
				answers(t, client, url)
			}
			if opened.URL() != url {
				t.Errorf("%s became %s", url, opened.URL())
			}
		})
	}
}

func TestResumedTunnelHasTheURLOfItsEarlierLife(t *testing.T) {
	for _, k := range kinds() {
		if k.plain {
			continue
		}
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s, d := k.start(t)
			first := open(t, d, tunnel.Local{})
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(first.Err(), tunnel.ErrClosed) {
				t.Errorf("done with %v; want ErrClosed", first.Err())
			}
			second := reopen(t, d, tunnel.Local{Serve: hello(t), Resume: first.Resume()})
			if second.URL() != first.URL() || second.Resume() != first.Resume() {
				t.Errorf("%s became %s", first.URL(), second.URL())
			}
			answers(t, visitor(t, s), second.URL())
		})
	}
}

// reopen opens a tunnel whose name the server may still be giving up.
func reopen(t *testing.T, d *frp.Driver, l tunnel.Local) tunnel.Tunnel {
	t.Helper()
	for {
		opened, err := d.Open(t.Context(), l)
		if err == nil {
			closeInTheEnd(t, opened)
			return opened
		}
		if _, ok := errors.AsType[*tunnel.TransientError](err); !ok {
			t.Fatal(err)
		}
	}
}

func TestResumeUnderAnotherTemplateIsAConfigError(t *testing.T) {
	for _, resume := range []string{"https://a.elsewhere.test", "http://127.0.0.1:20000", "http://A.tunnels.test", "http://.tunnels.test", "nonsense"} {
		d, err := frp.New(frp.Options{ServerAddr: "127.0.0.1:1", PublicURL: "http://{subdomain}.tunnels.test"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Open(t.Context(), tunnel.Local{Resume: resume})
		if _, ok := errors.AsType[*tunnel.ConfigError](err); !ok {
			t.Errorf("%s: got %v; want a ConfigError", resume, err)
		}
	}
}

func TestClosingOneTunnelLeavesTheOthers(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version})
			d, client := driver(t, s, frp.Options{}), visitor(t, s)
			release := make(chan struct{})
			streaming := open(t, d, tunnel.Local{Serve: serve(t, func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-release
				_, _ = io.WriteString(w, "hello")
			})})
			other, ended := open(t, d, tunnel.Local{Serve: hello(t)}), open(t, d, tunnel.Local{Serve: hello(t)})
			live, err := client.Get(streaming.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = live.Body.Close() }()
			answers(t, client, ended.URL())

			if err := ended.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			awaitGone(t, client, ended.URL())
			answers(t, client, other.URL())
			close(release)
			if page, err := io.ReadAll(live.Body); err != nil || string(page) != "hello" {
				t.Errorf("the live stream gave %q, %v", page, err)
			}
		})
	}
}

func TestWhatWasWrittenBeforeCloseArrives(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version})
			slow := newSlowLink(t, s.Addr(), 5*time.Millisecond)
			const size = 400 << 10
			written, uploading := make(chan struct{}, 1), make(chan struct{}, 1)
			opened, err := frp.Connect(t.Context(), frp.ClientOptions{
				ServerAddr: slow.Addr(), TLS: unverified(), URL: s.PortURL(),
				Proxy: frp.Proxy{Name: "a", Type: frp.TypeTCP},
			}, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost { // which goes on beyond Close
					uploading <- struct{}{}
					_, _ = io.Copy(io.Discard, r.Body)
					return
				}
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = w.Write(make([]byte, size))
				_ = http.NewResponseController(w).Flush()
				written <- struct{}{}
			}))
			if err != nil {
				t.Fatal(err)
			}
			client := visitor(t, s)
			var visitors sync.WaitGroup
			visitors.Go(func() {
				answer, err := client.Post(opened.URL(), "text/plain", endless{})
				if err == nil {
					_ = answer.Body.Close()
				}
			})
			<-uploading
			visitors.Go(func() {
				answer, err := client.Get(opened.URL())
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = answer.Body.Close() }()
				if n, err := io.Copy(io.Discard, answer.Body); n != size || err != nil {
					t.Errorf("%d bytes of %d arrived, %v", n, size, err)
				}
			})
			<-written
			if err := opened.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
			visitors.Wait()
		})
	}
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// awaitGone waits until the server no longer knows the URL.
func awaitGone(t *testing.T, client *http.Client, url string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusNotFound && strings.Contains(string(page), "frp") {
			return
		}
	}
	t.Fatalf("%s is still there", url)
}

func TestCloseOfAHungPeerIsBounded(t *testing.T) {
	s := frpstest.New(t, frpstest.Options{})
	up := open(t, driver(t, s, frp.Options{}), tunnel.Local{Serve: hello(t)})
	s.Freeze()
	defer s.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := up.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := up.Close(ctx); err != nil {
		t.Fatalf("closed again: %v", err)
	}
	if _, open := <-up.Done(); open || !errors.Is(up.Err(), tunnel.ErrClosed) {
		t.Errorf("done with %v; want ErrClosed", up.Err())
	}
}

func TestCloseWhileReconnectingIsAtOnce(t *testing.T) {
	s := frpstest.New(t, frpstest.Options{})
	o := alert(s.Addr())
	o.TLS = unverified()
	opened, err := frp.Connect(t.Context(), o, hello(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Freeze() // so that every attempt hangs, too
	defer s.Thaw()
	await(t, opened, tunnel.Reconnecting)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := opened.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestClientIsAliveToAServerThatInsistsOnPings(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version, HeartbeatTimeout: time.Second, AuthEverything: true})
			connect := func(name string, every time.Duration) tunnel.Tunnel {
				opened, err := frp.Connect(t.Context(), frp.ClientOptions{
					ServerAddr: s.Addr(), Ping: every,
					Proxy: frp.Proxy{Name: name, Type: frp.TypeHTTP, Subdomain: name},
				}, func(net.Conn) {})
				if err != nil {
					t.Fatal(err)
				}
				closeInTheEnd(t, opened)
				return opened
			}
			pinging, silent := connect("pinging", 200*time.Millisecond), connect("silent", -1)
			changed := pinging.Changed()
			await(t, silent, tunnel.Reconnecting)
			select {
			case <-changed:
				t.Error("the client that pings was disconnected")
			default:
			}
		})
	}
}
