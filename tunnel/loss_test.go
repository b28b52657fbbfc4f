package tunnel_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

// losses collects what a pool says is lost.
type losses struct {
	mu       sync.Mutex
	sessions map[string][]string // by server
	calls    int
}

func (l *losses) note(server string, sessions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = make(map[string][]string)
	}
	slices.Sort(sessions)
	l.sessions[server] = sessions
	l.calls++
}

func (l *losses) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func (l *losses) of(server string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[server]
}

func TestAURLThatFailsForItsGraceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var lost losses
		var counted atomic.Int32
		p := elastic(t, driver, tunnel.PoolOptions{
			Multiplex: 4, Lost: lost.note, Observer: tunnel.Observer{Lost: func() { counted.Add(1) }},
		})
		place(t, p, "a")
		place(t, p, "b")
		line := driver.at("http://t1.test")
		line.turn(refusing)
		time.Sleep(91 * time.Second)
		if got := lost.of("srv-1"); !slices.Equal(got, []string{"a", "b"}) || counted.Load() != 1 {
			t.Fatalf("got %v, counted %d; want a and b", got, counted.Load())
		}
		// It is over for this URL even if it came back now.
		line.turn(fair)
		time.Sleep(time.Minute)
		if got := states(p)[0]; got != tunnel.ServerLost {
			t.Errorf("got %s; want lost", got)
		}
		p.Release("a")
		at, err := p.Move(t.Context(), "b")
		if err != nil || at.Server != "srv-2" || at.Generation != 2 || at.URL == line.URL() {
			t.Errorf("moved: got %+v, %v; want generation 2 on another server", at, err)
		}
		time.Sleep(closing)
		if got := p.Servers(); len(got) != 1 || driver.left() != 1 {
			t.Errorf("got %+v; want nothing left of the lost server", got)
		}
		calls := lost.count()
		time.Sleep(10 * time.Minute)
		if lost.count() != calls {
			t.Error("told of a loss that is over")
		}
	})
}

func TestASessionThatLosesItsEndpointAgainMovesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		told := make(chan string, 1)
		p := elastic(t, driver, tunnel.PoolOptions{Lost: func(server string, _ []string) { told <- server }})
		at := place(t, p, "a")
		for generation := 2; generation < 5; generation++ {
			driver.at(at.URL).die(tunnel.ErrExpired)
			if got := <-told; got != at.Server {
				t.Errorf("got %s lost; want %s", got, at.Server)
			}
			next, err := p.Move(t.Context(), "a")
			if err != nil || next.Generation != generation || next.Server == at.Server {
				t.Fatalf("got %+v, %v; want generation %d on another server than %s", next, err, generation, at.Server)
			}
			at = next
		}
	})
}

func TestOneTunnelOfEightDyingIsFeltByItsSessionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var p *tunnel.Pool
		moved := make(chan error, 64)
		p = elastic(t, driver, tunnel.PoolOptions{Multiplex: 8, Lost: func(_ string, sessions []string) {
			for _, session := range sessions {
				_, err := p.Move(context.Background(), session)
				moved <- err
			}
		}})
		before := placeAll(t.Context(), p, 64)
		if len(loads(t, p)) != 8 {
			t.Fatalf("got %v; want 8 servers", loads(t, p))
		}
		dead := driver.at(before[0].URL)
		dead.die(&tunnel.LostError{Reason: "the session is gone"})
		for range 8 {
			if err := <-moved; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		for i, was := range before {
			at, ok := p.Current(sessionName(i))
			hit := was.URL == before[0].URL
			if !ok || hit != (at.Generation == 2) || hit == (at.URL == was.URL) {
				t.Errorf("%s: got %+v, was %+v; want only the sessions of the dead tunnel moved, and once", sessionName(i), at, was.Placement)
			}
		}
		if got := loads(t, p); len(got) != 8 || driver.attempts() != 9 {
			t.Errorf("got %v and %d tunnels; want one new server for the dead one", got, driver.attempts())
		}
	})
}

func TestAServerThatDiesBeforeItsSessionsAreRegisteredIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var registered atomic.Bool
		stopped := make(chan string, 8)
		p := elastic(t, driver, tunnel.PoolOptions{Lost: func(_ string, sessions []string) {
			if registered.Load() { // as a registry that knows nothing of them yet
				stopped <- sessions[0]
			}
		}})
		at := place(t, p, "a")
		driver.at(at.URL).die(tunnel.ErrExpired)
		synctest.Wait()
		registered.Store(true)
		start := time.Now()
		if got := <-stopped; got != "a" || time.Since(start) > 30*time.Second {
			t.Errorf("got %s after %s; want a within a probe interval", got, time.Since(start))
		}
		p.Release("a")
		time.Sleep(closing)
		if n := driver.left(); n != 1 {
			t.Errorf("got %d tunnels; want that of the server that took its place", n)
		}
	})
}

func TestMovingNeedsAPlaceAndEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 1, Max: 1})
		if _, err := p.Move(t.Context(), "nobody"); !errors.Is(err, tunnel.ErrNotPlaced) {
			t.Errorf("got %v; want ErrNotPlaced", err)
		}
		at := place(t, p, "a")
		if same, err := p.Move(t.Context(), "a"); err != nil || same != at {
			t.Errorf("on a server that is well: got %+v, %v; want no move", same, err)
		}
		driver.at(at.URL).Become(tunnel.Reconnecting)
		synctest.Wait()
		moving := make(chan error, 2)
		for range cap(moving) {
			go func() {
				_, err := p.Move(t.Context(), "a")
				moving <- err
			}()
		}
		synctest.Wait()
		p.Release("a")
		for range cap(moving) {
			if err := <-moving; !errors.Is(err, tunnel.ErrNotPlaced) {
				t.Errorf("released meanwhile: got %v; want ErrNotPlaced", err)
			}
		}
		if got := p.Stats(); got.Used != 0 || got.Waiting != 0 {
			t.Errorf("got %+v; want nothing left of it", got)
		}
	})
}
