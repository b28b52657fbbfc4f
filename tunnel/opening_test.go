package tunnel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

func TestFailuresAreTriedAgainOrNot(t *testing.T) {
	refusal := errors.New("refused")
	for name, c := range map[string]struct {
		err      error
		attempts int
		within   time.Duration
	}{
		"transient":     {&tunnel.TransientError{Err: refusal}, 6, 16 * time.Second},
		"garbage":       {refusal, 6, 16 * time.Second},
		"rate limited":  {&tunnel.RateLimitError{RetryAfter: 5 * time.Second, Err: refusal}, 6, 40 * time.Second},
		"credential":    {&tunnel.AuthError{Err: refusal}, 1, time.Second},
		"configuration": {&tunnel.ConfigError{Err: refusal}, 1, time.Second},
		"quota":         {&tunnel.QuotaError{Err: refusal}, 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &provider{open: func(ctx context.Context, n int, l tunnel.Local) error {
					return errors.Join(slow(time.Second)(ctx, n, l), c.err)
				}}
				p := elastic(t, driver, tunnel.PoolOptions{Min: -1})
				for _, got := range placeAll(t.Context(), p, 4) {
					failed, ok := errors.AsType[*tunnel.OpenError](got.err)
					if !ok || !errors.Is(got.err, refusal) || failed.Attempts != c.attempts || got.took > c.within {
						t.Errorf("got %v after %s; want an OpenError after %d attempts within %s", got.err, got.took, c.attempts, c.within)
					}
				}
				if got := driver.attempts(); got != c.attempts {
					t.Errorf("got %d attempts; want %d", got, c.attempts)
				}
			})
		})
	}
}

func TestADriverThatRecoversServesThoseWhoWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := make(map[tunnel.Outcome]int)
		var mu sync.Mutex
		attempts := make(map[string]int)
		driver := &provider{open: func(_ context.Context, _ int, l tunnel.Local) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[l.Server]++
			switch attempts[l.Server] {
			case 1:
				return &tunnel.TransientError{Err: errors.New("500")}
			case 2:
				return &tunnel.RateLimitError{RetryAfter: 3 * time.Second, Err: errors.New("429")}
			default:
				return nil
			}
		}}
		pacer, err := pacing.New(t.Context(), pacing.Options{Rate: 5})
		if err != nil {
			t.Fatal(err)
		}
		p := elastic(t, driver, tunnel.PoolOptions{
			Multiplex: 8, Pacer: pacer,
			Observer: tunnel.Observer{Attempted: func(o tunnel.Outcome, _ time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[o]++
			}},
		})
		for _, got := range placeAll(t.Context(), p, 64) {
			if got.err != nil {
				t.Fatal(got.err)
			}
		}
		loads(t, p)
		if outcomes[tunnel.OutcomeOK] != 8 || outcomes[tunnel.OutcomeTransient] != 8 || outcomes[tunnel.OutcomeRateLimited] != 8 {
			t.Errorf("got %v; want 8 of each", outcomes)
		}
		for i, at := range driver.opens[1:] {
			if gap := at.Sub(driver.opens[i]); gap < 200*time.Millisecond {
				t.Errorf("attempts %d and %d are %s apart; want every attempt paced", i, i+1, gap)
			}
		}
	})
}

func TestADriverThatNeverAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: slow(1000 * time.Hour)}
		p := elastic(t, driver, tunnel.PoolOptions{Min: -1, OpenTimeout: 10 * time.Second})
		start := time.Now()
		_, err := p.Place(t.Context(), "a")
		if _, ok := errors.AsType[*tunnel.OpenError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 70*time.Second {
			t.Errorf("got %v after %s; want an OpenError after six times 10s", err, time.Since(start))
		}
	})
}

func TestAFailedOpeningAnswersOnlyThoseItWasFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: func(ctx context.Context, n int, l tunnel.Local) error {
			if err := slow(50*time.Second)(ctx, n, l); err != nil || n != 3 {
				return err
			}
			return &tunnel.AuthError{Err: errors.New("expired")}
		}}
		p := elastic(t, driver, tunnel.PoolOptions{Min: -1, Multiplex: 8})
		failed := 0
		for _, got := range placeAll(t.Context(), p, 64) {
			if got.err != nil {
				failed++
			}
		}
		if failed != 8 || p.Stats().Used != 56 || driver.attempts() != 8 {
			t.Errorf("got %d failed, %+v, %d attempts; want 8 failed and 56 placed by 7 of 8 openings", failed, p.Stats(), driver.attempts())
		}
		loads(t, p)
	})
}

func TestABacklogIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer, err := pacing.New(t.Context(), pacing.Options{Rate: 1, MaxWait: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p := elastic(t, &provider{}, tunnel.PoolOptions{Min: -1, Multiplex: 1, Pacer: pacer})
		var good, refused int
		for _, got := range placeAll(t.Context(), p, 10) {
			switch {
			case got.err == nil:
				good++
			case errors.Is(got.err, tunnel.ErrBacklog) && got.took == 0:
				refused++
			default:
				t.Errorf("got %v after %s", got.err, got.took)
			}
		}
		if good != 4 || refused != 6 {
			t.Errorf("got %d placed and %d refused; want 4 and 6", good, refused)
		}
	})
}

func TestAQuotaStopsGrowthUntilATunnelIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		driver.open = func(context.Context, int, tunnel.Local) error {
			if driver.left() == 2 {
				return &tunnel.QuotaError{Err: errors.New("two are enough")}
			}
			return nil
		}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 1})
		place(t, p, "a")
		place(t, p, "b")
		waited := make(chan error, 2)
		for _, session := range []string{"c", "d"} {
			go func() {
				_, err := p.Place(t.Context(), session)
				waited <- err
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		if got := driver.attempts(); got != 3 || len(waited) != 0 {
			t.Errorf("got %d attempts; want 3, one of them against the quota, and callers that wait", got)
		}
		p.Release("a")
		if err := <-waited; err != nil {
			t.Errorf("the first in line: got %v; want the place that got free", err)
		}
		if err := p.Drain(loadedWith(p, "b")); err != nil {
			t.Fatal(err)
		}
		p.Release("b")
		if err := <-waited; err != nil {
			t.Errorf("the second: got %v; want a new server in the place of the closed one", err)
		}
	})
}

// loadedWith is the ID of the server that the session is on.
func loadedWith(p *tunnel.Pool, session string) string {
	at, _ := p.Current(session)
	return at.Server
}

func TestTheServerThatIsKeptIsOpenedAgainAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: func(_ context.Context, n int, _ tunnel.Local) error {
			if n < 6 {
				return &tunnel.AuthError{Err: errors.New("not yet")}
			}
			return nil
		}}
		p := elastic(t, driver, tunnel.PoolOptions{})
		if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "not yet") {
			t.Errorf("Ready: got %v; want what is wrong", err)
		}
		time.Sleep(20 * time.Second)
		if got := driver.attempts(); got != 5 {
			t.Errorf("in 20s: got %d attempts; want 5, after 1, 2, 4 and 8 s", got)
		}
		time.Sleep(12 * time.Second)
		if err := p.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
	})
}

func TestAServerThatCannotListenIsAFailedOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("no port")
		p := elastic(t, &provider{}, tunnel.PoolOptions{
			Min:    -1,
			Listen: func(context.Context, string) (*tunnel.Server, error) { return nil, busy },
		})
		_, err := p.Place(t.Context(), "a")
		if _, ok := errors.AsType[*tunnel.OpenError](err); !ok || !errors.Is(err, busy) {
			t.Errorf("got %v; want an OpenError that says why", err)
		}
	})
}
