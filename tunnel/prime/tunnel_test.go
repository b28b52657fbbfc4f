package prime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
)

// done says whether the tunnel is done.
func done(t tunnel.Tunnel) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}

func TestATunnelThatTheProviderEndedIsDone(t *testing.T) {
	for name, end := range map[string]func(b *bench, id string){
		"expired":   func(b *bench, id string) { b.plane.Expire(id) },
		"forgotten": func(b *bench, id string) { b.plane.Forget(id) },
		"deleted": func(b *bench, _ string) {
			b.plane.Fail(controlplane.Get, controlplane.Fault{Status: 200, Body: `{"tunnel_id":"` + b.plane.Tunnels()[0].ID + `","status":"Terminated"}`})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, controlplane.Options{}, t.TempDir())
				opened, link := b.open(t)
				time.Sleep(10 * time.Minute)
				if done(opened) {
					t.Fatal("done before its end")
				}
				end(b, b.plane.Tunnels()[0].ID)
				time.Sleep(76 * time.Second)
				if !done(opened) || !errors.Is(opened.Err(), tunnel.ErrExpired) {
					t.Errorf("got %v; want ErrExpired", opened.Err())
				}
				if link.closed {
					t.Error("the connection was cut; calls may still come through it")
				}
				if err := opened.Close(t.Context()); err != nil || !link.closed {
					t.Errorf("Close: got %v, connection closed: %t", err, link.closed)
				}
				if !errors.Is(opened.Err(), tunnel.ErrExpired) {
					t.Errorf("after Close: got %v; want the first reason", opened.Err())
				}
			})
		})
	}
}

func TestAFailingControlPlaneEndsNoTunnel(t *testing.T) {
	for name, fault := range map[string]controlplane.Fault{
		"error": {Status: 500}, "garbage": {Status: 200, Body: "<html>terminated</html>"}, "nothing": {}, "hanging": {Hang: true},
		"another's": {Status: 200, Body: `{"tunnel_id":"t-other","status":"EXPIRED"}`}, "key": {Status: 401}, "null": {Status: 200, Body: "null"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, controlplane.Options{}, t.TempDir())
				opened, _ := b.open(t)
				b.plane.Fail(controlplane.Get, fault)
				time.Sleep(30 * time.Minute)
				if done(opened) {
					t.Errorf("done: %v", opened.Err())
				}
				if got := b.plane.Counts().Gets; got < 15 || got > 40 {
					t.Errorf("asked %d times in half an hour; want about 30", got)
				}
				if err := opened.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestALostConnectionIsAskedAboutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		opened, link := b.open(t)
		time.Sleep(10 * time.Second)
		b.plane.Expire(b.plane.Tunnels()[0].ID)
		link.Become(tunnel.Reconnecting)
		if opened.State() != tunnel.Reconnecting {
			t.Errorf("got state %s; want reconnecting", opened.State())
		}
		time.Sleep(7 * time.Second)
		if !done(opened) || !errors.Is(opened.Err(), tunnel.ErrExpired) {
			t.Errorf("got %v; want ErrExpired", opened.Err())
		}
		if err := opened.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAConnectionThatKeepsBreakingDoesNotFloodTheControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		opened, link := b.open(t)
		for range 600 {
			link.Become(tunnel.Reconnecting)
			time.Sleep(50 * time.Millisecond)
			link.Become(tunnel.Up)
			time.Sleep(50 * time.Millisecond)
		}
		if got := b.plane.Counts().Gets; got > 17 {
			t.Errorf("asked %d times in a minute", got)
		}
		if err := opened.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAConnectionLostForGoodIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		opened, link := b.open(t)
		link.End(&tunnel.LostError{Reason: "test"})
		synctest.Wait()
		if _, lost := errors.AsType[*tunnel.LostError](opened.Err()); !done(opened) || !lost {
			t.Errorf("got %v; want it lost", opened.Err())
		}
		if err := opened.Close(t.Context()); err != nil || b.plane.Live() != 0 {
			t.Errorf("got %v with %d tunnels left", err, b.plane.Live())
		}
	})
}

func TestATunnelIsRetiredBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{Lifetime: 2 * time.Hour, Reap: 24 * time.Hour}, t.TempDir())
		opened, _ := b.open(t)
		start := time.Now()
		<-opened.(tunnel.Retirer).Retire()
		if got := time.Since(start); got != 110*time.Minute {
			t.Errorf("retired after %s; want 1h50m", got)
		}
		if done(opened) {
			t.Error("done; it works until it expires")
		}
		<-opened.Done()
		if got := time.Since(start); got < 2*time.Hour || got > 2*time.Hour+76*time.Second {
			t.Errorf("done after %s; want soon after 2h", got)
		}
		if err := opened.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseIsBoundedAndWhatIsLeftIsDeletedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		stop := b.run(t.Context())
		opened, _ := b.open(t)
		b.plane.Fail(controlplane.Delete, controlplane.Fault{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := opened.Close(ctx)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("got %v after %s; want it to end with its context", err, took)
		}
		if !done(opened) || !errors.Is(opened.Err(), tunnel.ErrClosed) {
			t.Errorf("got %v; want ErrClosed", opened.Err())
		}
		time.Sleep(time.Minute)
		b.plane.Mend()
		time.Sleep(3 * time.Minute)
		if got := b.plane.Live(); got != 0 || b.Left() != 0 {
			t.Errorf("%d tunnels, %d left to do; want none", got, b.Left())
		}
		stop()
		if err := opened.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestTheEndOfRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		stop := b.run(t.Context())
		opened, _ := b.open(t)
		b.plane.Fail(controlplane.Delete, controlplane.Fault{Hang: true})
		start := time.Now()
		if err := opened.Close(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("took %s; want no more than two deletions may", took)
		}
	})
}
