package prime_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/pacing"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

// pool is a pool of servers behind this driver, which runs.
func pool(t *testing.T, stand *controlplane.Stand, d *prime.Driver, multiplex int, pace *pacing.Pacer) *tunnel.Pool {
	t.Helper()
	probes := stand.FRPS.Transport()
	probes.DisableKeepAlives = true
	p, err := tunnel.NewPool(tunnel.PoolOptions{
		Driver: d, Multiplex: multiplex, Min: -1, Pacer: pace, Transport: probes,
		Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: func(nonce string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Muxproxy-Server", nonce)
					w.WriteHeader(http.StatusNoContent)
				})
			}})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cleaner, stopCleaner := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	running.Go(func() { _ = d.Run(cleaner) })
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		cancel()
		stopCleaner()
		running.Wait()
		if got := stand.Live(); got != 0 {
			t.Errorf("%d tunnels left; want none", got)
		}
	})
	return p
}

// placeAll places n sessions at once and returns how many are on each server.
func placeAll(t *testing.T, p *tunnel.Pool, n int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	load := make(map[string]int)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			places, err := p.Place(t.Context(), fmt.Sprint("session-", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			load[places[0].Server]++
		})
	}
	all.Wait()
	return load
}

func newPacer(t *testing.T, rate float64) *pacing.Pacer {
	t.Helper()
	pace, err := pacing.New(t.Context(), pacing.Options{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	return pace
}

// Twelve tunnels at once against a provider that makes five a second: paced,
// nobody sees its limit, and no creation is wasted.
func TestPacedCreationStaysUnderTheProvidersLimit(t *testing.T) {
	stand := provider(t, controlplane.Options{Rate: 5, Window: time.Second})
	load := placeAll(t, pool(t, stand, driver(t, stand), 1, newPacer(t, 4.9)), 12)
	if len(load) != 12 {
		t.Errorf("got %d servers; want 12", len(load))
	}
	if got := stand.Counts(); got.Creates != 12 || got.RateLimited != 0 {
		t.Errorf("got %d creations, %d refused; want 12 and none", got.Creates, got.RateLimited)
	}
}

// Somebody else uses up the limit, and the provider says when there is more.
func TestTheProvidersRetryAfterIsObeyed(t *testing.T) {
	stand := provider(t, controlplane.Options{Rate: 4, Window: 2 * time.Second})
	load := placeAll(t, pool(t, stand, driver(t, stand), 1, newPacer(t, 1000)), 8)
	if len(load) != 8 {
		t.Errorf("got %d servers; want 8", len(load))
	}
	// Those already asking when the first refusal comes are refused, too.
	if got := stand.Counts(); got.Created != 8 || got.Creates > 20 {
		t.Errorf("got %d creations for 8 tunnels", got.Creates)
	}
}

func TestSessionsAreServedWhateverTheControlPlaneAnswersAtFirst(t *testing.T) {
	for name, fault := range map[string]controlplane.Fault{
		"429":               {Status: 429, Times: 3, Header: http.Header{"Retry-After": {"1"}}},
		"500":               {Status: 500, Body: "<html>", Times: 3},
		"503":               {Status: 503, Times: 3},
		"garbage":           {Status: 201, Body: "<html>", Times: 3},
		"nothing":           {Times: 3},
		"answers are lost":  {Late: true, Times: 3},
		"errors after work": {Late: true, Status: 500, Times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			stand := provider(t, controlplane.Options{})
			stand.Fail(controlplane.Create, fault)
			const multiplex = 8
			for server, n := range placeAll(t, pool(t, stand, driver(t, stand), multiplex, newPacer(t, 100)), 32) {
				if n > multiplex {
					t.Errorf("%s has %d sessions; want at most %d", server, n, multiplex)
				}
			}
		})
	}
}
