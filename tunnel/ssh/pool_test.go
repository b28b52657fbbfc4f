package ssh_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

// streaming answers probes, and everything else with an event every 50 ms for as
// long as the client stays.
func streaming(nonce string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Muxproxy-Server", nonce)
		if r.URL.Path == "/healthz" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := fmt.Fprint(w, "data: x\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
}

// newPool is a pool of tunnels through this sshd, which runs.
func newPool(t *testing.T, sshd *sshdtest.Server, multiplex int) *tunnel.Pool {
	t.Helper()
	p, err := tunnel.NewPool(tunnel.PoolOptions{
		Driver: driver(t, options(sshd)), Multiplex: multiplex, Min: -1, ProbeInterval: time.Second,
		Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Handler: streaming})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() {
		ctx, cancelShutdown := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancelShutdown()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
		eventually(t, "end of the SSH sessions", func() bool { return len(sshd.Sessions(t)) == 0 })
	})
	return p
}

// rollout is a session whose client keeps a stream open, and opens another when
// one breaks.
type rollout struct {
	session string
	events  atomic.Int64
	broken  atomic.Int64
}

func (r *rollout) run(ctx context.Context, t *testing.T, p *tunnel.Pool, c *http.Client) {
	t.Helper()
	for ctx.Err() == nil {
		at, ok := p.Current(r.session)
		if !ok {
			t.Errorf("%s has no place", r.session)
			return
		}
		if r.stream(ctx, c, at.URL) {
			r.broken.Add(1)
		}
	}
}

// stream reads a stream to its end and tells whether it was broken, which one
// is that had begun.
func (r *rollout) stream(ctx context.Context, c *http.Client, url string) (broken bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := c.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		r.events.Add(1)
	}
	return ctx.Err() == nil
}

// fleet places n sessions at once and keeps a stream open for each until the
// test ends.
func fleet(t *testing.T, p *tunnel.Pool, n int) []*rollout {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	ctx, cancel := context.WithCancel(t.Context())
	var placing, running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	})
	rollouts := make([]*rollout, n)
	for i := range rollouts {
		r := &rollout{session: fmt.Sprint("session-", i)}
		rollouts[i] = r
		placing.Go(func() {
			if _, err := p.Place(ctx, r.session); err != nil {
				t.Errorf("%s: %v", r.session, err)
				return
			}
			running.Go(func() { r.run(ctx, t, p, &http.Client{Transport: transport}) })
		})
	}
	placing.Wait()
	return rollouts
}

// progress waits until every rollout has got an event that it has not now.
func progress(t *testing.T, rollouts []*rollout) {
	t.Helper()
	for _, r := range rollouts {
		had := r.events.Load()
		eventually(t, "events of "+r.session, func() bool { return r.events.Load() > had })
	}
}

// full checks that there are so many servers, each with as many sessions as it
// takes.
func full(t *testing.T, p *tunnel.Pool, servers, multiplex int) {
	t.Helper()
	all := p.Servers()
	if len(all) != servers {
		t.Errorf("got %d servers; want %d", len(all), servers)
	}
	for _, s := range all {
		if s.Sessions != multiplex {
			t.Errorf("%s: got %d sessions; want %d", s.ID, s.Sessions, multiplex)
		}
	}
}

func ready(p *tunnel.Pool) int { return p.Stats().Servers[tunnel.ServerReady] }

func TestSshdIsKilledAndStartedAgainUnder64Rollouts(t *testing.T) {
	sshd := sshdtest.Start(t)
	p := newPool(t, sshd, 8)
	rollouts := fleet(t, p, 64)
	full(t, p, 8, 8)
	progress(t, rollouts)
	before := p.Servers()

	sshd.Kill(t)
	eventually(t, "no server in placement", func() bool { return ready(p) == 0 })
	sshd.Restart(t)
	eventually(t, "all servers back", func() bool { return ready(p) == 8 })
	progress(t, rollouts)

	full(t, p, 8, 8)
	for i, s := range p.Servers() {
		if s.ID != before[i].ID || s.URL != before[i].URL {
			t.Errorf("got %s at %s; want %s at %s", s.ID, s.URL, before[i].ID, before[i].URL)
		}
	}
	for _, r := range rollouts {
		if at, _ := p.Current(r.session); at.Generation != 1 {
			t.Errorf("%s: got generation %d; want that it kept its URL", r.session, at.Generation)
		}
		if r.broken.Load() != 1 {
			t.Errorf("%s: got %d broken streams; want 1", r.session, r.broken.Load())
		}
	}
	for _, r := range rollouts { // every place is given back
		p.Release(r.session)
		if _, err := p.Place(t.Context(), r.session); err != nil {
			t.Error(err)
		}
	}
	full(t, p, 8, 8)
}

func TestOneOfEightTunnelsIsCutUnder64Rollouts(t *testing.T) {
	sshd := sshdtest.Start(t)
	p := newPool(t, sshd, 8)
	rollouts := fleet(t, p, 64)
	full(t, p, 8, 8)
	progress(t, rollouts)
	sshd.Cut(t)
	broken := func() (n int) {
		for _, r := range rollouts {
			n += int(r.broken.Load())
		}
		return n
	}
	eventually(t, "broken streams", func() bool { return broken() == 8 })
	eventually(t, "all servers back", func() bool { return ready(p) == 8 })
	progress(t, rollouts)
	if got := broken(); got != 8 {
		t.Errorf("got %d broken streams; want only the 8 of the tunnel that was cut", got)
	}
	full(t, p, 8, 8)
}
