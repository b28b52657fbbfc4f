package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

func TestShutdownAnswersThoseInLineAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: func(ctx context.Context, n int, l tunnel.Local) error {
			return slow(time.Duration(n)*10*time.Second)(ctx, n, l)
		}}
		p := newElastic(t, driver, tunnel.PoolOptions{Multiplex: 4})
		ran := make(chan error, 1)
		go func() { ran <- p.Run(context.WithoutCancel(t.Context())) }()
		all := make(chan []placed, 1)
		go func() { all <- placeAll(t.Context(), p, 16) }()
		time.Sleep(21 * time.Second) // two of four servers are up
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		closed := 0
		for _, got := range <-all {
			if errors.Is(got.err, tunnel.ErrPoolClosed) {
				closed++
			}
		}
		if err := <-ran; err != nil || closed != 8 || driver.left() != 0 || len(p.Servers()) != 0 {
			t.Errorf("got %v, %d told so, %d tunnels and %v left; want 8 and nothing", err, closed, driver.left(), p.Servers())
		}
		for range 2 { // again and before anything
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Place(t.Context(), "late"); !errors.Is(err, tunnel.ErrPoolClosed) {
			t.Errorf("afterwards: got %v; want ErrPoolClosed", err)
		}
		if err := p.Run(t.Context()); err != nil {
			t.Errorf("Run afterwards: got %v; want nil", err)
		}
	})
}

func TestRunEndsEverythingWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := newElastic(t, driver, tunnel.PoolOptions{Min: 3})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- p.Run(ctx) }()
		place(t, p, "a")
		cancel()
		if err := <-ran; err != nil || driver.left() != 0 || len(p.Servers()) != 0 {
			t.Errorf("got %v, %d tunnels and %v left; want nothing", err, driver.left(), p.Servers())
		}
	})
}

func TestShutdownOfAPoolThatNeverRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newElastic(t, &provider{}, tunnel.PoolOptions{})
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a driver whose tunnels never finish closing, or else do late.
type stuck struct {
	provider
	release chan struct{}
}

func (s *stuck) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	t, err := s.provider.Open(ctx, l)
	if err != nil {
		return nil, err
	}
	return stuckTunnel{t, s.release}, nil
}

type stuckTunnel struct {
	tunnel.Tunnel
	release chan struct{}
}

func (t stuckTunnel) Close(ctx context.Context) error {
	<-t.release
	return t.Tunnel.Close(ctx)
}

func TestATunnelThatHangsInCloseHoldsNothingElseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &stuck{release: make(chan struct{})}
		o := tunnel.PoolOptions{
			Driver: driver, Multiplex: 1, Idle: time.Minute,
			Transport: &http.Transport{DialContext: driver.dial, DisableKeepAlives: true},
			Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
				return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: healthy})
			},
		}
		p, err := tunnel.NewPool(o)
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- p.Run(context.WithoutCancel(t.Context())) }()
		placeAll(t.Context(), p, 4)
		for i := range 4 {
			p.Release(sessionName(i))
		}
		time.Sleep(2 * time.Minute)
		if got := p.Servers(); len(got) != 1 {
			t.Errorf("got %+v; want the idle ones given up", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		start := time.Now()
		if err := p.Shutdown(ctx); err != nil || time.Since(start) > 4*time.Second {
			t.Errorf("got %v after %s; want the end within the budget", err, time.Since(start))
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
		close(driver.release)
	})
}

func TestQuiesceWaitsForCallsAndLeavesTheTunnelsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, finish := make(chan struct{}), make(chan struct{})
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 2, Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: func(nonce string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/call" {
						entered <- struct{}{}
						<-finish
					}
					healthy(nonce).ServeHTTP(w, r)
				})
			}})
		}})
		at := place(t, p, "a")
		client := &http.Client{Transport: &http.Transport{DialContext: driver.dial, DisableKeepAlives: true}}
		get := func(path string) error {
			response, err := client.Get(at.URL + path)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		call := make(chan error, 1)
		go func() { call <- get("/call") }()
		<-entered
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Quiesce(impatient); err == nil || !strings.Contains(err.Error(), "srv-1: 1 calls") {
			t.Errorf("got %v; want that srv-1 has a call", err)
		}
		if _, err := p.Place(t.Context(), "b"); !errors.Is(err, tunnel.ErrPoolClosed) {
			t.Errorf("placing: got %v; want ErrPoolClosed", err)
		}
		if err := get("/healthz"); err != nil {
			t.Errorf("while it waits: %v; want the tunnel up", err)
		}
		quiet := make(chan error, 1)
		go func() { quiet <- p.Quiesce(t.Context()) }()
		synctest.Wait()
		close(finish)
		if err := errors.Join(<-quiet, <-call); err != nil {
			t.Error(err)
		}
	})
}

func TestServerAnswersConnectionsThatComeInProcess(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	var dials sync.WaitGroup
	for range 20 {
		dials.Go(func() {
			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					s.Serve(far)
					return near, nil
				},
			}}
			response, err := client.Get("http://in.process/")
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusNoContent {
				t.Errorf("got %d; want 204", response.StatusCode)
			}
		})
	}
	dials.Wait()
}

func TestAServerThatIsShutDownClosesConnectionsHandedToIt(t *testing.T) {
	s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{Handler: healthy})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Addr()); got != "srv-1" {
		t.Errorf("address: got %s; want the server's name", got)
	}
	early, far := net.Pipe()
	s.Serve(far)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	late, far := net.Pipe()
	s.Serve(far)
	for name, conn := range map[string]net.Conn{"before": early, "after": late} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("handed over %s it was shut down: want it closed", name)
		}
	}
}
