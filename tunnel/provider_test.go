package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/tunnel"
)

// closing is more than a server needs to close its connections, and less than
// anything else takes.
const closing = time.Second

// weather is how a public URL behaves.
type weather int

const (
	fair     weather = iota
	refusing         // nobody accepts connections
	hanging          // connections are accepted, and that is all
	strange          // a provider's page for tunnels that it does not know
	foreign          // another server of this kind
	moved            // a redirect to the server itself
)

// provider is a tunnel driver and the network in front of its tunnels, all in
// memory. Its zero value opens tunnels at once.
type provider struct {
	// open says how the nth attempt goes; nil is well and at once.
	open func(ctx context.Context, n int, l tunnel.Local) error
	// arrival is the weather of a new tunnel's URL.
	arrival weather
	// noResume makes tunnels that cannot come back.
	noResume bool
	// retires makes tunnels that can say that their end is near.
	retires bool
	// elsewhere brings tunnels back under another URL.
	elsewhere bool

	mu      sync.Mutex
	opens   []time.Time
	tunnels map[string]*line // by host
	living  int
}

func (p *provider) Name() string { return "fake" }

func (p *provider) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	p.mu.Lock()
	p.opens = append(p.opens, time.Now())
	n := len(p.opens)
	p.mu.Unlock()
	if p.open != nil {
		if err := p.open(ctx, n, l); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &line{
		provider: p, host: fmt.Sprintf("t%d.test", n), serve: l.Serve, weather: p.arrival,
	}
	if l.Resume != "" && !p.elsewhere {
		t.host = l.Resume
	}
	if p.tunnels == nil {
		p.tunnels = make(map[string]*line)
	}
	p.tunnels[t.host] = t
	p.living++
	if p.retires {
		t.retire = make(chan struct{})
		return retiring{t}, nil
	}
	return t, nil
}

// attempts is how often a tunnel was asked for.
func (p *provider) attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.opens)
}

// left is how many tunnels have not been closed.
func (p *provider) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.living
}

// at is the tunnel with this URL.
func (p *provider) at(url string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnels[strings.Trim(strings.TrimPrefix(url, "http://"), "/")]
}

// dial is the network: it leads to the tunnel with this host.
func (p *provider) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	t := p.at(host)
	if t == nil {
		return nil, errors.New("no such host")
	}
	near, far := net.Pipe()
	switch t.now() {
	case fair:
		t.serve(far)
	case refusing:
		return nil, errors.New("connection refused")
	case hanging:
		go func() { _, _ = io.Copy(io.Discard, far) }()
	case strange:
		go answer(far, "404 Not Found", "")
	case foreign:
		go answer(far, "204 No Content", "X-Muxproxy-Server: somebody-else\r\n")
	case moved:
		go answer(far, "302 Found", "Location: http://"+t.host+"/again\r\n")
	}
	return near, nil
}

// answer answers one request.
func answer(conn net.Conn, status, headers string) {
	defer func() { _ = conn.Close() }()
	_, _ = conn.Read(make([]byte, 1<<10))
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", status, headers)
}

// line is a tunnel.
type line struct {
	tunnel.Condition

	provider *provider
	host     string
	serve    func(net.Conn)

	closed bool // under the provider's lock

	mu      sync.Mutex
	weather weather
	retire  chan struct{}
}

// retiring is a tunnel whose end is known before.
type retiring struct{ *line }

func (t retiring) Retire() <-chan struct{} { return t.retire }

func (t *line) URL() string { return "http://" + t.host + "/" }

func (t *line) Resume() string {
	if t.provider.noResume {
		return ""
	}
	return t.host
}

func (t *line) Close(ctx context.Context) error {
	t.die(tunnel.ErrClosed)
	t.provider.mu.Lock()
	defer t.provider.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.provider.living--
	}
	return ctx.Err()
}

// die ends the tunnel, which may then still have to be closed.
func (t *line) die(err error) {
	t.turn(refusing)
	t.End(err)
}

// turn changes the weather.
func (t *line) turn(to weather) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.weather = to
}

func (t *line) now() weather {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.weather
}

// healthy is what servers serve in these tests: their nonce.
func healthy(nonce string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Muxproxy-Server", nonce)
		w.WriteHeader(http.StatusNoContent)
	})
}

// elastic runs a pool on the provider, in a bubble of virtual time, and ends it
// with the test: nothing may be left then.
func elastic(t *testing.T, provider *provider, o tunnel.PoolOptions) *tunnel.Pool {
	t.Helper()
	p := newElastic(t, provider, o)
	t.Cleanup(func() {
		if n := provider.left(); n != 0 {
			t.Errorf("%d tunnels left", n)
		}
	})
	run(t, p)
	return p
}

func newElastic(t *testing.T, provider *provider, o tunnel.PoolOptions) *tunnel.Pool {
	t.Helper()
	o.Driver = provider
	o.Transport = &http.Transport{DialContext: provider.dial, DisableKeepAlives: true}
	if o.Listen == nil {
		o.Listen = func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: healthy})
		}
	}
	p, err := tunnel.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs the pool until the end of the test.
func run(t *testing.T, p *tunnel.Pool) {
	t.Helper()
	ran := make(chan error, 1)
	ctx := context.WithoutCancel(t.Context())
	go func() { ran <- p.Run(ctx) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := errors.Join(p.Shutdown(ctx), <-ran); err != nil {
			t.Errorf("end of the pool: %v", err)
		}
		if left := p.Servers(); len(left) != 0 {
			t.Errorf("servers left: %+v", left)
		}
	})
	synctest.Wait()
}

// placed is what became of a call of Place.
type placed struct {
	registry.Placement
	err  error
	took time.Duration
}

// placeAll places n sessions, s0 and on, each by a caller of its own and all at
// once, and waits for all of them.
func placeAll(ctx context.Context, p *tunnel.Pool, n int) []placed {
	all := make([]placed, n)
	var callers sync.WaitGroup
	start := time.Now()
	for i := range all {
		callers.Go(func() {
			at, err := p.Place(ctx, sessionName(i))
			all[i] = placed{err: err, took: time.Since(start)}
			if err == nil {
				all[i].Placement = at[0]
			}
		})
	}
	callers.Wait()
	return all
}

// sessionName is that of the ith session of placeAll.
func sessionName(i int) string { return fmt.Sprintf("s%d", i) }

// place gives one session a place.
func place(t *testing.T, p *tunnel.Pool, session string) registry.Placement {
	t.Helper()
	places, err := p.Place(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return places[0]
}

// loads is the number of sessions on each server that has some, by its ID.
func loads(t *testing.T, p *tunnel.Pool) map[string]int {
	t.Helper()
	loads := make(map[string]int)
	for _, s := range p.Servers() {
		if s.Sessions > s.Capacity {
			t.Errorf("%s has %d sessions; want at most %d", s.ID, s.Sessions, s.Capacity)
		}
		if s.Sessions > 0 {
			loads[s.ID] = s.Sessions
		}
	}
	return loads
}

// states are the states of the servers, in order.
func states(p *tunnel.Pool) []tunnel.ServerState {
	var all []tunnel.ServerState
	for _, s := range p.Servers() {
		all = append(all, s.State)
	}
	return all
}
