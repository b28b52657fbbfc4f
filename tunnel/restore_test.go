package tunnel_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
)

func TestServersComeBackUnderTheirURLsWithTheirSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		var mu sync.Mutex
		records := make(map[string]tunnel.Record)
		o := tunnel.PoolOptions{
			Multiplex: 4,
			Opened: func(r tunnel.Record) {
				mu.Lock()
				defer mu.Unlock()
				records[r.Server] = r
			},
			Closed: func(server string) {
				mu.Lock()
				defer mu.Unlock()
				delete(records, server)
			},
		}
		// The first life.
		p := newElastic(t, driver, o)
		ran := make(chan error, 1)
		go func() { ran <- p.Run(context.WithoutCancel(t.Context())) }()
		before := placeAll(t.Context(), p, 8)
		place(t, p, "gone")
		if err := p.Drain("srv-3"); err != nil {
			t.Fatal(err)
		}
		p.Release("gone")
		time.Sleep(closing)
		if err := errors.Join(p.Shutdown(t.Context()), <-ran); err != nil {
			t.Fatal(err)
		}
		if len(records) != 2 {
			t.Fatalf("got %v; want the two servers that were there at the end", records)
		}
		// The second, with other servers besides.
		var back []tunnel.Record
		for _, r := range records {
			r.Sessions = make(map[string]int)
			for i, at := range before {
				if at.Server == r.Server {
					r.Sessions[sessionName(i)] = at.Generation
				}
			}
			back = append(back, r)
		}
		o.Opened, o.Closed = nil, nil
		p = newElastic(t, driver, o)
		p.Restore(back)
		run(t, p)
		for i, was := range before {
			if at, ok := p.Current(sessionName(i)); !ok || at != was.Placement {
				t.Errorf("%s: got %+v; want %+v", sessionName(i), at, was.Placement)
			}
		}
		if got := states(p); !slices.Equal(got, []tunnel.ServerState{tunnel.ServerReady, tunnel.ServerReady}) {
			t.Errorf("got %v; want both ready and no other", got)
		}
		if at := place(t, p, "new"); at.Server != "srv-3" {
			t.Errorf("got %s; want a name that no restored server has", at.Server)
		}
	})
}

func TestAnOldURLIsAskedForAsLongAsAURLMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		driver := &provider{open: func(context.Context, int, tunnel.Local) error {
			if time.Since(start) < 45*time.Second {
				return &tunnel.TransientError{Err: errors.New("still registered")}
			}
			return nil
		}}
		var lost losses
		p := newElastic(t, driver, tunnel.PoolOptions{Lost: lost.note})
		p.Restore([]tunnel.Record{{Server: "srv-9", URL: "http://t9.test", Resume: "t9.test", Sessions: map[string]int{"a": 1}}})
		run(t, p)
		time.Sleep(time.Minute)
		if got := p.Servers(); len(got) != 1 || got[0].State != tunnel.ServerReady || got[0].URL != "http://t9.test" || lost.count() != 0 {
			t.Errorf("got %+v, and %d losses; want it back", got, lost.count())
		}
	})
}

func TestServersThatCannotComeBackAreLost(t *testing.T) {
	refuse := func(context.Context, int, tunnel.Local) error { return &tunnel.AuthError{Err: errors.New("no")} }
	deny := func(context.Context, int, tunnel.Local) error { return errors.New("taken") }
	for name, c := range map[string]struct {
		driver *provider
		resume string
	}{
		"without a name":       {&provider{}, ""},
		"refused":              {&provider{open: refuse}, "t9.test"},
		"denied":               {&provider{open: deny}, "t9.test"},
		"under another URL":    {&provider{elsewhere: true}, "t9.test"},
		"that does not answer": {&provider{arrival: refusing}, "t9.test"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost losses
				p := newElastic(t, c.driver, tunnel.PoolOptions{Min: -1, Multiplex: 4, Lost: lost.note})
				p.Restore([]tunnel.Record{
					{Server: "srv-9", URL: "http://t9.test", Resume: c.resume, Sessions: map[string]int{"a": 1, "b": 2}},
					{Server: "srv-4", URL: "http://t4.test", Resume: "t4.test"},
				})
				run(t, p)
				time.Sleep(70 * time.Second)
				if got := lost.of("srv-9"); !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("got %v lost; want a and b", got)
				}
				c.driver.open, c.driver.arrival = nil, fair
				at, err := p.Move(t.Context(), "b")
				if want := (registry.Placement{Server: "srv-10", URL: at.URL, Generation: 3}); err != nil || at != want {
					t.Errorf("got %+v, %v; want %+v", at, err, want)
				}
				p.Release("a")
				time.Sleep(closing)
				if got := p.Servers(); len(got) != 1 {
					t.Errorf("got %+v; want the new server alone", got)
				}
			})
		})
	}
}

func TestAStaticPoolTakesBackSessionsOfTheURLsThatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost losses
		p := public(t, newStreet("http://a.test", "http://b.test"), tunnel.PoolOptions{Lost: lost.note})
		p.Restore([]tunnel.Record{
			{Server: "srv-2", URL: "http://a.test", Sessions: map[string]int{"a": 4}},
			{Server: "srv-1", URL: "http://c.test", Sessions: map[string]int{"c": 1}},
		})
		run(t, p)
		if at, ok := p.Current("a"); !ok || at.URL != "http://a.test" || at.Generation != 4 {
			t.Errorf("got %+v; want it where it was", at)
		}
		if got := lost.of("srv-1"); !slices.Equal(got, []string{"c"}) {
			t.Errorf("got %v lost; want c", got)
		}
		if at, err := p.Move(t.Context(), "c"); err != nil || at.URL != "http://b.test" || at.Generation != 2 {
			t.Errorf("got %+v, %v; want it on the less loaded server", at, err)
		}
	})
}

// street is a row of public URLs that lead to the servers of a static pool.
type street struct {
	*provider
	servers []*tunnel.Server
}

func newStreet(urls ...string) *street {
	s := &street{provider: &provider{tunnels: make(map[string]*line)}}
	for i, url := range urls {
		server, err := tunnel.Listen(context.Background(), tunnel.ServerOptions{
			ID: "srv-" + string(rune('1'+i)), URL: url, Handler: healthy,
		})
		if err != nil {
			panic(err) // there is nothing to listen on
		}
		s.servers = append(s.servers, server)
		host := url[len("http://"):]
		s.tunnels[host] = &line{provider: s.provider, host: host, serve: server.Serve}
	}
	return s
}

// public is a static pool of the servers of a street.
func public(t *testing.T, s *street, o tunnel.PoolOptions) *tunnel.Pool {
	t.Helper()
	o.Servers, o.Name = s.servers, "static"
	o.Transport = &http.Transport{DialContext: s.dial, DisableKeepAlives: true}
	p, err := tunnel.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPublicURLsOfAStaticPoolAreProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet("http://a.test", "http://b.test", "http://c.test")
		s.at("a.test").turn(foreign)
		s.at("b.test").turn(refusing)
		var lost losses
		p := public(t, s, tunnel.PoolOptions{Multiplex: 2, Lost: lost.note})
		run(t, p)
		if got, want := states(p), []tunnel.ServerState{tunnel.ServerProbing, tunnel.ServerProbing, tunnel.ServerReady}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
		place(t, p, "a")
		place(t, p, "b")
		waited := make(chan registry.Placement, 1)
		go func() {
			at, _ := p.Place(t.Context(), "c")
			waited <- at[0]
		}()
		time.Sleep(10 * time.Second)
		s.at("b.test").turn(fair)
		if at := <-waited; at.URL != "http://b.test" {
			t.Errorf("got %+v; want the URL that has come up", at)
		}
		if _, err := p.Place(t.Context(), "1", "2", "3", "4", "5", "6", "7"); !errors.Is(err, tunnel.ErrPoolFull) {
			t.Errorf("got %v; want ErrPoolFull: three servers have six places", err)
		}
		// A URL that is not the pool's own may come back even after its loss.
		s.at("c.test").turn(hanging)
		time.Sleep(2 * time.Minute)
		if got := lost.of("srv-3"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %v lost; want a and b", got)
		}
		s.at("c.test").turn(fair)
		time.Sleep(time.Minute)
		if got := states(p)[2]; got != tunnel.ServerReady {
			t.Errorf("got %s; want ready again", got)
		}
	})
}
