package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

func TestEndsAtOnceHandTheirPlacesToThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 32, Max: 8})
		placeAll(t.Context(), p, 256)
		var callers sync.WaitGroup
		for i := range 256 {
			callers.Go(func() {
				if _, err := p.Place(t.Context(), fmt.Sprintf("late%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := p.Stats(); got.Waiting != 256 || got.Free != 0 {
			t.Errorf("got %+v; want 256 waiting for a place", got)
		}
		var ends sync.WaitGroup
		for i := range 256 {
			ends.Go(func() { p.Release(fmt.Sprintf("s%d", i)) })
		}
		ends.Wait()
		callers.Wait()
		loads(t, p)
		if got := p.Stats(); got.Used != 256 || got.Waiting != 0 || driver.attempts() != 8 {
			t.Errorf("got %+v and %d tunnels; want the places handed on, and no new tunnel", got, driver.attempts())
		}
		for i := range 256 {
			ends.Go(func() { p.Release(fmt.Sprintf("late%d", i)) })
		}
		ends.Wait()
		if got := p.Stats(); got.Used != 0 || got.Free != 256 {
			t.Errorf("got %+v; want every place back", got)
		}
	})
}

func TestCallersThatLeaveWhileTheyWaitCostNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{open: slow(30 * time.Second)}
		p := elastic(t, driver, tunnel.PoolOptions{Multiplex: 32})
		gone := errors.New("client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan []placed, 1)
		go func() { left <- placeAll(ctx, p, 128) }()
		var stayed sync.WaitGroup
		for i := range 128 {
			stayed.Go(func() {
				if _, err := p.Place(t.Context(), fmt.Sprintf("stay%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		cancel(gone)
		for _, got := range <-left {
			if !errors.Is(got.err, gone) {
				t.Fatalf("got %v; want the cause", got.err)
			}
		}
		stayed.Wait()
		loads(t, p)
		if got := p.Stats(); got.Used != 128 || got.Waiting != 0 {
			t.Errorf("got %+v; want a place for each of the 128 that stayed and for nobody else", got)
		}
	})
}

func TestATunnelThatComesUpLateServesThoseWhoStillWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := elastic(t, &provider{open: slow(30 * time.Second)}, tunnel.PoolOptions{})
		impatient, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		early := make(chan error, 1)
		go func() {
			_, err := p.Place(impatient, "early")
			early <- err
		}()
		start := time.Now()
		place(t, p, "patient")
		if time.Since(start) != 30*time.Second {
			t.Errorf("got a place after %s; want 30s", time.Since(start))
		}
		if err := <-early; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("impatient: got %v; want the end of its patience", err)
		}
	})
}

func TestAURLThatAnswersAfterThirtySecondsIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{arrival: refusing}
		p := elastic(t, driver, tunnel.PoolOptions{})
		time.AfterFunc(30*time.Second-time.Millisecond, func() { driver.at("http://t1.test").turn(fair) })
		start := time.Now()
		place(t, p, "a")
		if time.Since(start) != 30*time.Second {
			t.Errorf("got a place after %s; want the last probe to have found the server", time.Since(start))
		}
	})
}

func TestAURLThatDoesNotAnswerYetSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &provider{arrival: refusing}
		p := elastic(t, driver, tunnel.PoolOptions{})
		time.Sleep(2 * time.Second)
		server := p.Servers()[0]
		if server.State != tunnel.ServerProbing || !strings.Contains(server.LastError, "refused") {
			t.Errorf("got %s, %q; want one that is probed and why that fails", server.State, server.LastError)
		}
		if err := p.Ready(); err == nil || !strings.Contains(err.Error(), "no server is ready: srv-1 is probing: "+server.LastError) {
			t.Errorf("Ready: got %v; want the same reason", err)
		}
		driver.at("http://t1.test").turn(fair)
		place(t, p, "a")
		if got := p.Servers()[0].LastError; got != "" || p.Ready() != nil {
			t.Errorf("got %q, %v once it answers; want none", got, p.Ready())
		}
	})
}

func TestOnlyTheServersOwnAnswerMakesItReady(t *testing.T) {
	for name, arrival := range map[string]weather{"a provider's page": strange, "another server": foreign, "a redirect": moved, "nothing": hanging} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &provider{arrival: arrival}
				p := elastic(t, driver, tunnel.PoolOptions{Min: -1})
				start := time.Now()
				_, err := p.Place(t.Context(), "a")
				failed, ok := errors.AsType[*tunnel.OpenError](err)
				if _, notReady := errors.AsType[*tunnel.NotReadyError](err); !ok || !notReady || failed.Server != "srv-1" {
					t.Errorf("got %v; want that srv-1 is not ready", err)
				}
				if took := time.Since(start); took < 30*time.Second || took > 35*time.Second {
					t.Errorf("answered after %s; want 30s and at most one probe more", took)
				}
				time.Sleep(closing)
				if n := driver.left(); n != 0 {
					t.Errorf("%d tunnels left", n)
				}
			})
		})
	}
}
