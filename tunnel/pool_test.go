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

// pool returns a pool of n servers, srv-1 to srv-n, that are never run.
func pool(t *testing.T, n int) *tunnel.Pool {
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
		t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
		servers = append(servers, s)
	}
	return tunnel.NewPool(servers...)
}

func TestPlacementIsOnTheLeastLoadedServer(t *testing.T) {
	p := pool(t, 3)
	load := make(map[string]int)
	place := func(session string) string {
		t.Helper()
		at, err := p.Place(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		return at.Server
	}
	for i := range 9 {
		load[place(fmt.Sprint(i))]++
	}
	for server, n := range load {
		if n != 3 {
			t.Errorf("%s: got %d sessions; want 3", server, n)
		}
	}
	at, _ := p.Current("4")
	p.Release("4")
	if got := place("next"); got != at.Server {
		t.Errorf("next session: got %s; want %s, which has room", got, at.Server)
	}
}

func TestPlacingAgainChangesNothing(t *testing.T) {
	p := pool(t, 2)
	first, err := p.Place(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := p.Place(t.Context(), "a"); again != first {
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
	p := pool(t, 2)
	if _, err := p.Place(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Release("a")
	}
	p.Release("never placed")
	if at, ok := p.Current("a"); ok {
		t.Errorf("got %+v; want no placement", at)
	}
}

func TestAnEmptyPoolAndAnImpatientCallerGetErrors(t *testing.T) {
	if _, err := tunnel.NewPool().Place(t.Context(), "a"); !errors.Is(err, tunnel.ErrNoServer) {
		t.Errorf("empty pool: got %v; want ErrNoServer", err)
	}
	gone := errors.New("caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	p := pool(t, 1)
	if _, err := p.Place(ctx, "a"); !errors.Is(err, gone) {
		t.Errorf("got %v; want the cause", err)
	}
	if _, ok := p.Current("a"); ok {
		t.Error("a caller that has gone got a place")
	}
}

func TestParallelPlacementsAndReleasesLeaveNothingBehind(t *testing.T) {
	p := pool(t, 4)
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
		at, err := p.Place(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		load[at.Server]++
	}
	if len(load) != 4 {
		t.Errorf("got %v; want one session a server: nothing of the released ones counts", load)
	}
}
