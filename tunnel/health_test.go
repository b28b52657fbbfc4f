package tunnel_test

import (
	"context"
	"errors"
	"net/http"
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

func (l *losses) of(server string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[server]
}

func TestADeadTunnelLeavesPlacementWithinOneProbeInterval(t *testing.T) {
	for name, to := range map[string]weather{"refusing": refusing, "hanging": hanging, "a provider's page": strange, "another server": foreign} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &provider{}
				p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4})
				place(t, p, "a")
				driver.at("http://t1.test").turn(to)
				time.Sleep(30 * time.Second)
				if got := states(p)[0]; got != tunnel.ServerFailing {
					t.Errorf("after one interval: got %s; want failing", got)
				}
				if at := place(t, p, "b"); at.Server != "srv-2" {
					t.Errorf("got %s; want another server", at.Server)
				}
				if at, ok := p.Current("a"); !ok || at.Server != "srv-1" {
					t.Errorf("got %+v; want the session left where it is", at)
				}
			})
		})
	}
}

func TestOneFailedProbeIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var failed atomic.Int32
		o := tunnel.PoolOptions{Driver: driver}
		network := &http.Transport{DialContext: driver.dial, DisableKeepAlives: true}
		var probes atomic.Int32
		o.Transport = transport(func(r *http.Request) (*http.Response, error) {
			if probes.Add(1) == 2 {
				return nil, errors.New("a hiccup")
			}
			return network.RoundTrip(r)
		})
		o.Listen = func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: healthy})
		}
		o.Observer.ProbeFailed = func() { failed.Add(1) }
		p, err := tunnel.NewPool(o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, p)
		for range 60 {
			time.Sleep(time.Second)
			if got := states(p); !slices.Equal(got, []tunnel.ServerState{tunnel.ServerReady}) {
				t.Fatalf("got %v; want ready throughout", got)
			}
		}
		if failed.Load() != 1 || probes.Load() < 4 {
			t.Errorf("got %d failures of %d probes; want the one", failed.Load(), probes.Load())
		}
	})
}

// transport is a function as an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAServerThatAnswersAgainIsPlacedOnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var lost losses
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4, Lost: lost.note})
		place(t, p, "a")
		line := driver.at("http://t1.test")
		line.turn(refusing)
		time.Sleep(45 * time.Second)
		line.turn(fair)
		time.Sleep(20 * time.Second)
		if at := place(t, p, "b"); at.Server != "srv-1" {
			t.Errorf("got %s; want the server that is back", at.Server)
		}
		time.Sleep(5 * time.Minute)
		if lost.calls != 0 || driver.attempts() != 1 {
			t.Errorf("got %d losses and %d tunnels; want none lost and no other opened", lost.calls, driver.attempts())
		}
	})
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
		synctest.Wait()
		if got := p.Servers(); len(got) != 1 || driver.left() != 1 {
			t.Errorf("got %+v; want nothing left of the lost server", got)
		}
		calls := lost.calls
		time.Sleep(10 * time.Minute)
		if lost.calls != calls {
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

func TestADrainingServerThatAnswersAgainGoesOnDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4})
		place(t, p, "a")
		if err := p.Drain("srv-1"); err != nil {
			t.Fatal(err)
		}
		line := driver.at("http://t1.test")
		line.turn(refusing)
		time.Sleep(40 * time.Second)
		line.turn(fair)
		time.Sleep(40 * time.Second)
		if at := place(t, p, "b"); at.Server != "srv-2" || states(p)[0] != tunnel.ServerDraining {
			t.Errorf("got %s, and %v; want srv-1 draining", at.Server, states(p))
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
		synctest.Wait()
		if n := driver.left(); n != 1 {
			t.Errorf("got %d tunnels; want that of the server that took its place", n)
		}
	})
}

func TestAReconnectingTunnelIsLeftAloneAndProbedWhenItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var lost losses
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4, Lost: lost.note})
		place(t, p, "a")
		line := driver.at("http://t1.test")
		line.turn(hanging)
		line.say(tunnel.Reconnecting)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerFailing {
			t.Errorf("reconnecting: got %s; want failing at once", got)
		}
		time.Sleep(50 * time.Second)
		line.turn(fair)
		line.say(tunnel.Up)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerReady {
			t.Errorf("up: got %s; want ready at once", got)
		}
		line.say(tunnel.Reconnecting)
		time.Sleep(61 * time.Second)
		if got := lost.of("srv-1"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %v lost; want a, once the grace is over", got)
		}
	})
}

func TestAProbeFromBeforeAReconnectDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{})
		line := driver.at("http://t1.test")
		line.turn(hanging)
		time.Sleep(22 * time.Second) // a probe hangs
		line.say(tunnel.Reconnecting)
		synctest.Wait()
		line.turn(fair)
		line.say(tunnel.Up)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerReady {
			t.Errorf("got %s; want ready as soon as it is up", got)
		}
		// The same when it is up again before anybody has looked.
		line.turn(hanging)
		time.Sleep(22 * time.Second)
		line.turn(fair)
		line.say(tunnel.Reconnecting)
		line.say(tunnel.Up)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerReady {
			t.Errorf("got %s; want ready throughout", got)
		}
	})
}

func TestCallsInFlightOutliveTheirServersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, finish := make(chan struct{}), make(chan struct{})
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: func(nonce string) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/", healthy(nonce))
				mux.HandleFunc("/call", func(w http.ResponseWriter, _ *http.Request) {
					close(entered)
					<-finish
					w.WriteHeader(http.StatusOK)
				})
				return mux
			}})
		}})
		at := place(t, p, "a")
		client := &http.Client{Transport: &http.Transport{DialContext: driver.dial, DisableKeepAlives: true}}
		status := make(chan int, 1)
		go func() {
			response, err := client.Get(at.URL + "/call")
			if err != nil {
				status <- 0
				return
			}
			_ = response.Body.Close()
			status <- response.StatusCode
		}()
		<-entered
		// New connections fail, so the URL is lost; the old one works.
		driver.at(at.URL).turn(refusing)
		time.Sleep(5 * time.Minute)
		if _, err := p.Move(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		close(finish)
		if got := <-status; got != http.StatusOK {
			t.Errorf("the call in flight: got %d; want 200", got)
		}
		synctest.Wait()
		if n := driver.left(); n != 1 {
			t.Errorf("got %d tunnels; want the lost one closed after its last call", n)
		}
	})
}

func TestATunnelThatRetiresDrainsItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{retires: true}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4})
		at := place(t, p, "a")
		close(driver.at(at.URL).retire)
		synctest.Wait()
		if next := place(t, p, "b"); next.Server != "srv-2" {
			t.Errorf("got %s; want another server", next.Server)
		}
		if got, _ := p.Current("a"); got != at {
			t.Errorf("got %+v; want the session left where it is", got)
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
		driver.at(at.URL).say(tunnel.Reconnecting)
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
