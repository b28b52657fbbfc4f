package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

// storm runs rollouts against a pool whose provider fails in every way there is,
// and checks after each step what must always hold.
type storm struct {
	t      *testing.T
	random *rand.Rand
	driver *provider
	pool   *tunnel.Pool

	mu    sync.Mutex
	alive map[string]bool // sessions that have a place, as their owners know
}

// chance is true once in n times.
func (s *storm) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n) == 0
}

func (s *storm) delay(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(most)))
}

// open is how the provider answers.
func (s *storm) open(ctx context.Context, n int, l tunnel.Local) error {
	if err := slow(s.delay(20*time.Second))(ctx, n, l); err != nil {
		return err
	}
	cause := errors.New("weather")
	switch {
	case s.chance(6):
		return &tunnel.TransientError{Err: cause}
	case s.chance(10):
		return &tunnel.RateLimitError{RetryAfter: s.delay(5 * time.Second), Err: cause}
	case s.chance(20):
		return &tunnel.AuthError{Err: cause}
	case s.chance(20):
		return &tunnel.QuotaError{Err: cause}
	default:
		return nil
	}
}

// rollouts is a caller's life: sessions are placed, live, and end.
func (s *storm) rollouts(id int) {
	time.Sleep(s.delay(5 * time.Minute))
	var names []string
	for i := range 1 + int(s.delay(4)) {
		names = append(names, fmt.Sprintf("r%d.%d", id, i))
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), s.delay(2*time.Minute))
	defer cancel()
	places, err := s.pool.Place(ctx, names...)
	if err != nil {
		for _, name := range names {
			if at, ok := s.pool.Current(name); ok {
				s.t.Errorf("%s was refused (%v) and has a place: %+v", name, err, at)
			}
		}
		return
	}
	if len(places) != len(names) {
		s.t.Errorf("%v: got %d places", names, len(places))
	}
	s.mu.Lock()
	for _, name := range names {
		s.alive[name] = true
	}
	s.mu.Unlock()
	for _, name := range names {
		time.Sleep(s.delay(3 * time.Minute))
		s.mu.Lock()
		delete(s.alive, name)
		s.mu.Unlock()
		s.pool.Release(name)
	}
}

// lost moves half of what is lost and ends the rest.
func (s *storm) lost(_ string, sessions []string) {
	for _, session := range sessions {
		if s.chance(2) {
			ctx, cancel := context.WithTimeout(context.Background(), s.delay(time.Minute))
			_, _ = s.pool.Move(ctx, session)
			cancel()
			continue
		}
		s.mu.Lock()
		known := s.alive[session] // or it is told of again
		delete(s.alive, session)
		s.mu.Unlock()
		if known {
			s.pool.Release(session)
		}
	}
}

// fault does something to some tunnel or server.
func (s *storm) fault() {
	servers := s.pool.Servers()
	if len(servers) == 0 {
		return
	}
	server := servers[int(s.delay(time.Duration(len(servers))))]
	line := s.driver.at(server.URL)
	switch {
	case s.chance(8):
		_ = s.pool.Drain(server.ID)
	case line == nil:
	case s.chance(4):
		line.die(&tunnel.LostError{Reason: "weather"})
	case s.chance(3):
		line.Become(tunnel.Reconnecting)
		time.AfterFunc(s.delay(90*time.Second), func() { line.Become(tunnel.Up) })
	default:
		line.turn([]weather{refusing, hanging, strange, foreign}[s.delay(4)])
		time.AfterFunc(s.delay(2*time.Minute), func() { line.turn(fair) })
	}
}

// check says what is wrong, if anything.
func (s *storm) check() {
	s.t.Helper()
	synctest.Wait()
	total, standing := 0, 0
	for _, server := range s.pool.Servers() {
		total += server.Sessions
		if server.State != tunnel.ServerLost {
			standing++
		}
		if server.Sessions > server.Capacity {
			s.t.Errorf("%s has %d sessions; want at most %d", server.ID, server.Sessions, server.Capacity)
		}
	}
	if used := s.pool.Stats().Used; used != total || standing > 12 {
		s.t.Errorf("got %d sessions on %d servers and %d places in use; want the same number, and at most 12 servers", total, standing, used)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.alive {
		if _, ok := s.pool.Current(session); !ok {
			s.t.Errorf("%s has lost its place", session)
		}
	}
}

func TestWhateverEndsFailsOrRacesNoPlaceIsLostAndNoServerOverfull(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { weatherTheStorm(t, seed) })
		})
	}
}

func weatherTheStorm(t *testing.T, seed uint64) {
	t.Helper()
	s := &storm{t: t, random: rand.New(rand.NewPCG(seed, 1)), driver: &provider{}, alive: make(map[string]bool)}
	s.driver.open = s.open
	s.pool = newElastic(t, s.driver, tunnel.PoolOptions{Multiplex: 8, Max: 12, Idle: 30 * time.Second, Lost: s.lost})
	t.Cleanup(func() {
		if n := s.driver.left(); n != 0 {
			t.Errorf("%d tunnels left", n)
		}
	})
	run(t, s.pool)
	var callers sync.WaitGroup
	for id := range 300 {
		callers.Go(func() { s.rollouts(id) })
	}
	over := make(chan struct{})
	go func() {
		callers.Wait()
		close(over)
	}()
	for going := true; going; {
		select {
		case <-over:
			going = false
		case <-time.After(time.Second):
			if s.chance(3) {
				s.fault()
			}
			s.check()
		}
	}
	// Fair weather again: everybody has left, and the pool takes as many as it
	// has room for.
	time.Sleep(10 * time.Minute)
	if stats := s.pool.Stats(); stats.Used != 0 || stats.Waiting != 0 || stats.Servers[tunnel.ServerLost] != 0 {
		t.Errorf("got %+v; want nobody left", stats)
	}
	s.driver.open = nil
	for _, got := range placeAll(t.Context(), s.pool, 96) {
		if got.err != nil {
			t.Fatalf("after the storm: %v", got.err)
		}
	}
	if got := loads(t, s.pool); len(got) != 12 {
		t.Errorf("got %v; want twelve full servers", got)
	}
}
