package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// affine returns a call that prefers the replica, while both are well.
func affine(tb testing.TB, u *upstream.Upstream, replica string) func() *upstream.Request {
	tb.Helper()
	for i := range 1000 {
		r := chat("{}")
		r.Affinity = fmt.Sprint(i)
		if got, _ := send(tb, u, r); got == replica {
			return func() *upstream.Request {
				r := chat("{}")
				r.Affinity = fmt.Sprint(i)
				return r
			}
		}
	}
	tb.Fatalf("no call goes to %s", replica)
	return nil
}

func TestReplicaThatCannotBeConnectedToIsOutUntilItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", answer)()
		stop := network.serve("b:80", answer)
		var log bytes.Buffer
		codes := make(map[string]int)
		options := network.options()
		options.Logger = zerolog.New(&log)
		options.Observer.Done = func(_, code string) { codes[code]++ }
		set, u := newUpstream(t, options, replicas("http://a", "http://b"))
		toB := affine(t, u, "b")
		time.Sleep(5 * time.Second) // idle connections are gone
		stop()
		clear(codes)

		for range 10 { // nothing was written to b, so a answers
			if got, status := send(t, u, toB()); got != "a" || status != http.StatusOK {
				t.Fatalf("answered by %s with %d", got, status)
			}
		}
		if n := codes[upstream.CodeDialError]; n != 1 || codes["200"] != 10 {
			t.Errorf("got %v, want one failed dial and ten answers", codes)
		}
		if s := state(set, "b"); s != upstream.StateDown {
			t.Errorf("b is %s", s)
		}

		// The backoff doubles from 250 ms to 10 s: a minute has room for 9 trials.
		clear(codes)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			send(t, u, toB())
		}
		if n := codes[upstream.CodeDialError]; n < 8 || n > 10 {
			t.Errorf("%d trials in a minute", n)
		}

		defer network.serve("b:80", answer)()
		time.Sleep(10 * time.Second)
		if got, _ := send(t, u, toB()); got != "b" {
			t.Errorf("answered by %s once b is there again", got)
		}
		if s := state(set, "b"); s != upstream.StateUp {
			t.Errorf("b is %s", s)
		}
		if out, back := strings.Count(log.String(), "is out"), strings.Count(log.String(), "is back"); out != 1 || back != 1 {
			t.Errorf("logged %d times out and %d times back:\n%s", out, back, log.String())
		}
	})
}

func TestTrialEndsWhenTheConnectionIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		_, u := newUpstream(t, network.options(), replicas("http://a"))
		_, err := u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, false)
		_, err = u.Send(t.Context(), chat("{}"))
		wantUnavailable(t, err, time.Second)

		release := make(chan struct{})
		defer network.serve("a:80", func(w http.ResponseWriter, r *http.Request) {
			<-release // a generation of minutes
			answer(w, r)
		})()
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { send(t, u, chat("{}")) })
			synctest.Wait() // one after the other: the first is the trial
		}
		time.Sleep(5 * time.Minute)
		close(release)
		wg.Wait()
	})
}

func TestWhileATrialConnectsOtherCallsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		_, u := newUpstream(t, network.options(), replicas("http://a"))
		_, err := u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, false)
		time.Sleep(time.Second)
		network.silence("a:80", true)
		var wg sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := u.Send(ctx, chat("{}")); !errors.Is(err, context.Canceled) {
				t.Errorf("trial ended with %v", err)
			}
		})
		synctest.Wait()
		_, err = u.Send(t.Context(), chat("{}"))
		wantUnavailable(t, err, time.Second)
		leave() // the next call is the trial then
		wg.Wait()
		_, err = u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, true)
	})
}

func TestAllReplicasOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		_, u := newUpstream(t, network.options(), replicas("http://a", "http://b", "http://c"))
		_, err := u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, false) // all three were tried
		for _, addr := range []string{"a:80", "b:80", "c:80"} {
			if n := network.dialed(addr); n != 1 {
				t.Errorf("%d dials of %s, want 1", n, addr)
			}
		}
		_, err = u.Send(t.Context(), chat("{}"))
		wantUnavailable(t, err, time.Second)
		for range 20 {
			time.Sleep(10 * time.Second)
			_, err = u.Send(t.Context(), chat("{}"))
			wantDialError(t, err, false)
		}
		_, err = u.Send(t.Context(), chat("{}"))
		wantUnavailable(t, err, 10*time.Second)
	})
}

func TestConnectingHasItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		network.silence("a:80", true)
		_, u := newUpstream(t, network.options(), replicas("http://a"))
		start := time.Now()
		_, err := u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, true)
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("gave up after %v, want 10s", d)
		}
	})
}

func TestHandshakeIsWithinTheConnectBudget(t *testing.T) {
	url := rawServer(t, func(_ int, c net.Conn) { _, _ = c.Read(make([]byte, 1<<16)); _, _ = c.Read(make([]byte, 1)) })
	_, u := newUpstream(t, upstream.Options{ConnectTimeout: 50 * time.Millisecond}, replicas(strings.Replace(url, "http:", "https:", 1)))
	_, err := u.Send(t.Context(), chat("{}"))
	wantDialError(t, err, true)
}

func TestSlowIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Minute)
			answer(w, r)
		})()
		set, u := newUpstream(t, network.options(), replicas("http://a"))
		defer run(t, set)()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { send(t, u, chat("{}")) })
		}
		time.Sleep(19 * time.Minute)
		if s := state(set, "a"); s != upstream.StateUp || inflight(set) != 20 {
			t.Errorf("a is %s with %d in flight", s, inflight(set))
		}
		wg.Wait()
	})
}

func TestFiveServerErrorsInARowTakeAReplicaOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		var status atomic.Int64
		status.Store(http.StatusServiceUnavailable)
		defer network.serve("a:80", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })()
		set, u := newUpstream(t, network.options(), replicas("http://a"))
		fail := func(n int) {
			for range n {
				if _, got := send(t, u, chat("{}")); got != http.StatusServiceUnavailable {
					t.Fatalf("got %d", got)
				}
			}
		}
		fail(4)
		for _, well := range []int{200, 400, 404, 429} { // each ends the row
			status.Store(int64(well))
			send(t, u, chat("{}"))
			status.Store(http.StatusServiceUnavailable)
			fail(4)
		}
		fail(1)
		if s := set.List()[0].Replicas[0]; s.State != upstream.StateDown || s.LastError != "status 503" {
			t.Errorf("replica is %+v", s)
		}

		time.Sleep(250 * time.Millisecond)
		if s := state(set, "a"); s != upstream.StateUp {
			t.Errorf("replica is %s after its backoff", s)
		}
		fail(1) // one more takes it out for longer
		time.Sleep(250 * time.Millisecond)
		if s := state(set, "a"); s != upstream.StateDown {
			t.Errorf("replica is %s within its backoff", s)
		}

		time.Sleep(250 * time.Millisecond)
		status.Store(http.StatusOK)
		send(t, u, chat("{}"))
		if s := set.List()[0].Replicas[0]; s.State != upstream.StateUp || s.LastError != "" {
			t.Errorf("replica is %+v", s)
		}
		status.Store(http.StatusServiceUnavailable)
		fail(5)
	})
}

func TestReplicasOutForServerErrorsArePassedOverUnlessAllAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		var calls [2]atomic.Int64
		for i, addr := range []string{"a:80", "b:80"} {
			defer network.serve(addr, func(w http.ResponseWriter, r *http.Request) {
				calls[i].Add(1)
				w.WriteHeader(http.StatusInternalServerError)
			})()
		}
		set, u := newUpstream(t, network.options(), replicas("http://a", "http://b"))
		for range 5 {
			send(t, u, &upstream.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Header: http.Header{}, Affinity: "one"})
		}
		first := 0
		if calls[1].Load() == 5 {
			first = 1
		}
		for range 5 {
			send(t, u, &upstream.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Header: http.Header{}, Affinity: "one"})
		}
		if calls[first].Load() != 5 || calls[1-first].Load() != 5 {
			t.Errorf("calls went %d and %d; want 5 to each", calls[0].Load(), calls[1].Load())
		}
		if state(set, "a") != upstream.StateDown || state(set, "b") != upstream.StateDown {
			t.Error("a replica is up after five server errors")
		}
		if _, status := send(t, u, chat("{}")); status != http.StatusInternalServerError {
			t.Errorf("got %d; what is left to try must be tried", status)
		}
	})
}

func TestClientsThatLeaveNeverCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		silent := make(chan struct{})
		defer network.serve("a:80", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-silent:
			}
		})()
		defer close(silent)
		codes := make(map[string]int)
		options := network.options()
		options.Observer.Done = func(_, code string) { codes[code]++ }
		set, u := newUpstream(t, options, replicas("http://a"))
		left := errors.New("the harness left")
		for range 20 {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(left) })
			if _, err := u.Send(ctx, chat("{}")); !errors.Is(err, left) {
				t.Fatalf("got %v, want the cause", err)
			}
		}
		network.silence("a:80", true) // and the same while it connects
		for range 20 {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(left) })
			if _, err := u.Send(ctx, chat("{}")); !errors.Is(err, left) {
				t.Fatalf("got %v, want the cause", err)
			}
			set.Close() // ends the dials that were left behind
		}
		if s := state(set, "a"); s != upstream.StateUp || inflight(set) != 0 {
			t.Errorf("a is %s with %d in flight", s, inflight(set))
		}
		if codes[upstream.CodeCanceled] != 40 || len(codes) != 1 {
			t.Errorf("observed %v", codes)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(left)
		if _, err := u.Send(ctx, chat("{}")); !errors.Is(err, left) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

func TestCancelEndsTheBodyWithTheCause(t *testing.T) {
	var gone sync.WaitGroup
	gone.Add(1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
		<-r.Context().Done()
		gone.Done()
	})
	set, u := newUpstream(t, upstream.Options{}, replicas(server.URL))
	left := errors.New("the harness left")
	ctx, cancel := context.WithCancelCause(t.Context())
	res, err := u.Send(ctx, chat("{}"))
	if err != nil {
		t.Fatal(err)
	}
	cancel(left)
	if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, left) {
		t.Errorf("read ended with %v, want the cause", err)
	}
	_ = res.Body.Close()
	gone.Wait() // the upstream sees the disconnect
	if n := inflight(set); n != 0 {
		t.Errorf("%d in flight", n)
	}
}
