package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel"
)

// static returns a pool of n servers, srv-1 to srv-n, that is never run and
// probes nothing.
func static(t *testing.T, n int) *tunnel.Pool {
	t.Helper()
	var servers []*tunnel.Server
	for i := range n {
		s, err := tunnel.Listen(t.Context(), tunnel.ServerOptions{
			ID: fmt.Sprintf("srv-%d", i+1), Addr: "127.0.0.1:0",
			Handler: func(string) http.Handler { return http.NotFoundHandler() },
		})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	p, err := tunnel.NewPool(tunnel.PoolOptions{Name: "none", Servers: servers, Multiplex: -1, ProbeInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return p
}

func TestPlacementIsOnTheLeastLoadedServer(t *testing.T) {
	p := static(t, 3)
	load := make(map[string]int)
	for i := range 9 {
		load[place(t, p, fmt.Sprint(i)).Server]++
	}
	for server, n := range load {
		if n != 3 {
			t.Errorf("%s: got %d sessions; want 3", server, n)
		}
	}
	at, _ := p.Current("4")
	p.Release("4")
	if got := place(t, p, "next").Server; got != at.Server {
		t.Errorf("next session: got %s; want %s, which has room", got, at.Server)
	}
}

func TestPlacingAgainChangesNothing(t *testing.T) {
	p := static(t, 2)
	first := place(t, p, "a")
	if again := place(t, p, "a"); again != first {
		t.Errorf("got %+v; want %+v", again, first)
	}
	if first.Generation != 1 || first.URL == "" {
		t.Errorf("got %+v; want a URL of generation 1", first)
	}
	if current, ok := p.Current("a"); !ok || current != first {
		t.Errorf("Current: got %+v, %t; want %+v", current, ok, first)
	}
}

func TestReleaseIsIdempotentAndForgets(t *testing.T) {
	p := static(t, 2)
	place(t, p, "a")
	for range 2 {
		p.Release("a")
	}
	p.Release("never placed")
	if at, ok := p.Current("a"); ok {
		t.Errorf("got %+v; want no placement", at)
	}
}

func TestACallerThatHasGoneGetsNoPlace(t *testing.T) {
	gone := errors.New("caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	p := static(t, 1)
	if _, err := p.Place(ctx, "a"); !errors.Is(err, gone) {
		t.Errorf("got %v; want the cause", err)
	}
	if _, ok := p.Current("a"); ok {
		t.Error("a caller that has gone got a place")
	}
}

func TestParallelPlacementsAndReleasesLeaveNothingBehind(t *testing.T) {
	p := static(t, 4)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 200 {
				session := fmt.Sprintf("%d-%d", w, i)
				if _, err := p.Place(t.Context(), session); err != nil {
					t.Error(err)
				}
				p.Release(session)
			}
		})
	}
	all.Wait()
	load := make(map[string]int)
	for i := range 4 {
		load[place(t, p, fmt.Sprint(i)).Server]++
	}
	if len(load) != 4 {
		t.Errorf("got %v; want one session a server: nothing of the released ones counts", load)
	}
}
