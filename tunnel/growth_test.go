package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/pacing"
)

// slow makes every opening take so long.
func slow(d time.Duration) func(context.Context, int, tunnel.Local) error {
	return func(ctx context.Context, _ int, _ tunnel.Local) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestOneServerIsWarmBeforeAnybodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{}, tunnel.PoolOptions{})
		if err := p.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
		start := time.Now()
		at := place(t, p, "a")
		if at.Server != "srv-1" || at.URL != "http://t1.test" || at.Generation != 1 || time.Since(start) != 0 {
			t.Errorf("got %+v after %s; want a place on the warm server at once", at, time.Since(start))
		}
	})
}

func TestRegistrationsAtOnceGrowThePoolByWhatTheyNeedAndAtOnce(t *testing.T) {
	for _, c := range []struct{ callers, multiplex, servers int }{
		{256, 32, 8}, {256, 64, 4}, {257, 32, 9}, {64, 1, 64}, {1024, 32, 32},
	} {
		t.Run(fmt.Sprintf("%d by %d", c.callers, c.multiplex), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &provider{open: slow(10 * time.Second)}
				p := elastic(t, driver, tunnel.PoolOptions{Multiplex: c.multiplex})
				for _, got := range placeAll(t.Context(), p, c.callers) {
					if got.err != nil || got.took > 10*time.Second {
						t.Fatalf("got %v after %s; want a place after one opening", got.err, got.took)
					}
				}
				if got := driver.attempts(); got != c.servers {
					t.Errorf("got %d tunnels; want %d", got, c.servers)
				}
				total := 0
				for _, n := range loads(t, p) {
					total += n
				}
				if total != c.callers {
					t.Errorf("got %d sessions on the servers; want %d", total, c.callers)
				}
			})
		})
	}
}

func TestACallerThatFitsDoesNotWaitForANewServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: func(ctx context.Context, n int, l tunnel.Local) error {
			if n == 1 {
				return nil
			}
			return slow(time.Minute)(ctx, n, l)
		}}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 2})
		start := time.Now()
		place(t, p, "a")
		place(t, p, "b")
		late := make(chan time.Duration, 1)
		go func() {
			_, _ = p.Place(t.Context(), "c")
			late <- time.Since(start)
		}()
		synctest.Wait()
		p.Release("a") // goes to the one in line, not to whoever comes now
		if got := <-late; got != 0 {
			t.Errorf("the caller in line waited %s; want the place that got free", got)
		}
		go func() {
			_, _ = p.Place(t.Context(), "d")
			late <- time.Since(start)
		}()
		if got := <-late; got != time.Minute {
			t.Errorf("the caller that fits nowhere waited %s; want the opening that had begun", got)
		}
	})
}

func TestFreedPlacesGoToThoseInLineInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{}, tunnel.PoolOptions{Multiplex: 2, Max: 1})
		place(t, p, "a")
		place(t, p, "b")
		order := make(chan string, 3)
		for _, caller := range []string{"c", "batch", "d"} {
			sessions := []string{caller}
			if caller == "batch" {
				sessions = []string{"e", "f"}
			}
			go func() {
				if _, err := p.Place(t.Context(), sessions...); err != nil {
					t.Error(err)
				}
				order <- caller
			}()
			synctest.Wait()
		}
		if got := p.Stats().Waiting; got != 4 {
			t.Errorf("waiting: got %d; want 4", got)
		}
		var got []string
		for _, session := range []string{"a", "b", "c", "e"} {
			p.Release(session)
			synctest.Wait()
			for len(order) > 0 {
				got = append(got, <-order)
			}
		}
		if want := []string{"c", "batch", "d"}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v: one place is not enough for the batch, and nobody overtakes it", got, want)
		}
	})
}

func TestABatchThatGivesUpGivesBackWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{}, tunnel.PoolOptions{Multiplex: 2, Max: 1})
		place(t, p, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		batch := make(chan error, 1)
		go func() {
			_, err := p.Place(ctx, "b", "c")
			batch <- err
		}()
		synctest.Wait()
		start := time.Now()
		place(t, p, "d")
		if err := <-batch; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("batch: got %v after %s; want the end of its patience", err, time.Since(start))
		}
		if got := loads(t, p)["srv-1"]; got != 2 {
			t.Errorf("got %d sessions; want a and d", got)
		}
	})
}

func TestABatchThatCanNeverFitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{}, tunnel.PoolOptions{Multiplex: 2, Max: 2})
		start := time.Now()
		_, err := p.Place(t.Context(), "a", "b", "c", "d", "e")
		if !errors.Is(err, tunnel.ErrPoolFull) || time.Since(start) != 0 {
			t.Errorf("got %v after %s; want ErrPoolFull at once", err, time.Since(start))
		}
		if _, err := p.Place(t.Context(), "a", "b", "c", "d"); err != nil {
			t.Errorf("a batch that fits: %v", err)
		}
	})
}

func TestEmptyServersAreClosedDownToTheLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 1, Min: 2, Idle: time.Minute})
		placeAll(t.Context(), p, 8)
		for i := range 7 {
			p.Release(fmt.Sprintf("s%d", i))
		}
		time.Sleep(time.Minute - time.Second)
		if got := driver.left(); got != 8 {
			t.Errorf("before their time: got %d tunnels; want 8", got)
		}
		time.Sleep(2 * time.Second)
		if got := driver.left(); got != 2 {
			t.Errorf("after it: got %d tunnels; want 2", got)
		}
		if got := loads(t, p); len(got) != 1 {
			t.Errorf("got %v; want the server with a session among the rest", got)
		}
		p.Release("s7")
		time.Sleep(time.Hour)
		if got := driver.left(); got != 2 {
			t.Errorf("empty: got %d tunnels; want 2", got)
		}
	})
}

func TestSessionsFillServersUpSoThatOthersGetEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{}, tunnel.PoolOptions{Multiplex: 4, Idle: time.Minute})
		placeAll(t.Context(), p, 8)
		for _, s := range []string{"s0", "s1", "s4"} {
			p.Release(s)
		}
		place(t, p, "a")
		fullest := 0
		for _, n := range loads(t, p) {
			fullest = max(fullest, n)
		}
		if fullest != 4 {
			t.Errorf("got %v; want the fuller server filled up", loads(t, p))
		}
	})
}

func TestOpeningsThatNobodyNeedsAnyMoreAreGivenUpBeforeTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer, err := pacing.New(t.Context(), pacing.Options{Rate: 1})
		if err != nil {
			t.Fatal(err)
		}
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 1, Pacer: pacer})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancel()
		got := placeAll(ctx, p, 100)
		left := slices.IndexFunc(got, func(p placed) bool { return errors.Is(p.err, context.DeadlineExceeded) })
		if left < 0 {
			t.Fatal("want callers that lost patience")
		}
		made := driver.attempts()
		time.Sleep(time.Minute)
		if now := driver.attempts(); now != made || made != 6 {
			t.Errorf("got %d tunnels, and %d later; want 6 in 5 s and none for those who have left", made, now)
		}
		start := time.Now()
		place(t, p, "next")
		if time.Since(start) > time.Second {
			t.Errorf("the next caller waited %s; want no turn spent on those who have left", time.Since(start))
		}
	})
}

func TestADrainedServerGoesWithItsLastSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 4})
		place(t, p, "a")
		if err := p.Drain("srv-1"); err != nil {
			t.Fatal(err)
		}
		if at := place(t, p, "b"); at.Server != "srv-2" {
			t.Errorf("got %s; want another than the draining server", at.Server)
		}
		if at, ok := p.Current("a"); !ok || at.Server != "srv-1" || driver.left() != 2 {
			t.Errorf("got %+v; want the session where it was", at)
		}
		p.Release("a")
		time.Sleep(closing)
		if got := p.Servers(); len(got) != 1 || got[0].ID != "srv-2" || driver.left() != 1 {
			t.Errorf("got %+v; want srv-2 alone", got)
		}
		if err := p.Drain("srv-1"); !errors.Is(err, tunnel.ErrNoServer) {
			t.Errorf("again: got %v; want ErrNoServer", err)
		}
	})
}

func TestAPoolThatKeepsNoneOpensOneWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Min: -1, Idle: time.Minute})
		if err := p.Ready(); err != nil || driver.attempts() != 0 {
			t.Errorf("got %v and %d tunnels; want a ready pool without any", err, driver.attempts())
		}
		place(t, p, "a")
		p.Release("a")
		time.Sleep(time.Minute + time.Second)
		if got := driver.left(); got != 0 {
			t.Errorf("got %d tunnels; want none", got)
		}
	})
}
