package tunnel_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

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
		if lost.count() != 0 || driver.attempts() != 1 {
			t.Errorf("got %d losses and %d tunnels; want none lost and no other opened", lost.count(), driver.attempts())
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

func TestAReconnectingTunnelIsLeftAloneAndProbedWhenItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var lost losses
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4, Lost: lost.note})
		place(t, p, "a")
		line := driver.at("http://t1.test")
		line.turn(hanging)
		line.Become(tunnel.Reconnecting)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerFailing {
			t.Errorf("reconnecting: got %s; want failing at once", got)
		}
		time.Sleep(50 * time.Second)
		line.turn(fair)
		line.Become(tunnel.Up)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerReady {
			t.Errorf("up: got %s; want ready at once", got)
		}
		line.Become(tunnel.Reconnecting)
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
		line.Become(tunnel.Reconnecting)
		synctest.Wait()
		line.turn(fair)
		line.Become(tunnel.Up)
		synctest.Wait()
		if got := states(p)[0]; got != tunnel.ServerReady {
			t.Errorf("got %s; want ready as soon as it is up", got)
		}
		// The same when it is up again before anybody has looked.
		line.turn(hanging)
		time.Sleep(22 * time.Second)
		line.turn(fair)
		line.Become(tunnel.Reconnecting)
		line.Become(tunnel.Up)
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
		time.Sleep(closing)
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
