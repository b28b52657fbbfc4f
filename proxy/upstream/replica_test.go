package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// placements sends one call for each of n affinities and gives who answered.
func placements(tb testing.TB, u *upstream.Upstream, n int) []string {
	tb.Helper()
	got := make([]string, n)
	for i := range n {
		r := chat("{}")
		r.Affinity = fmt.Sprint("session-", i)
		got[i], _ = send(tb, u, r)
	}
	return got
}

func count(placed []string) map[string]int {
	n := make(map[string]int)
	for _, p := range placed {
		n[p]++
	}
	return n
}

func TestAffinityStaysWhenReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		for _, host := range []string{"a:80", "b:80", "c:80", "d:80", "e:80"} {
			defer network.serve(host, answer)()
		}
		four := []string{"http://a", "http://b", "http://c", "http://d"}
		set, u := newUpstream(t, network.options(), replicas(four...))
		const n = 1000
		before := placements(t, u, n)
		for replica, got := range count(before) {
			if got < n/4*7/10 || got > n/4*13/10 {
				t.Errorf("%s has %d of %d affinities on four replicas", replica, got, n)
			}
		}
		if again := placements(t, u, n); fmt.Sprint(again) != fmt.Sprint(before) {
			t.Error("affinities moved though nothing changed")
		}

		put(t, set, replicas(append(four, "http://e")...))
		for i, replica := range placements(t, u, n) {
			if replica != before[i] && replica != "e" {
				t.Fatalf("affinity %d moved from %s to %s when e was added", i, before[i], replica)
			}
		}

		put(t, set, replicas(four[1:]...))
		for i, replica := range placements(t, u, n) {
			if replica != before[i] && before[i] != "a" {
				t.Fatalf("affinity %d moved from %s to %s when a was removed", i, before[i], replica)
			}
		}

		put(t, set, replicas("http://d", "http://c", "http://b", "http://a"))
		if again := placements(t, u, n); fmt.Sprint(again) != fmt.Sprint(before) {
			t.Error("affinities are elsewhere though the same replicas are back in another order")
		}
	})
}

// hold answers the header at once and the body when release is closed.
func hold(release <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
		select {
		case <-release:
			_, _ = io.WriteString(w, `{"ok":true}`)
		case <-r.Context().Done():
		}
	}
}

// L47.
func TestLoadOfOneAffinityIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		release := make(chan struct{})
		for _, host := range []string{"a:80", "b:80", "c:80", "d:80"} {
			defer network.serve(host, hold(release))()
		}
		set, u := newUpstream(t, network.options(), replicas("http://a", "http://b", "http://c", "http://d"))
		var open []*upstream.Response
		for total := range 100 {
			r := chat("{}")
			r.Affinity = "hot"
			res, err := u.Send(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, res)
			share := (5*(total+1) + 15) / 16 // ceil(1.25 * (total+1) / 4)
			for _, s := range set.List()[0].Replicas {
				if s.Inflight > share {
					t.Fatalf("%s has %d of %d calls, want at most %d", s.Name, s.Inflight, total+1, share)
				}
			}
		}
		close(release)
		for _, res := range open {
			finish(t, res)
		}
	})
}

func TestCallsWithoutAffinityAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		release := make(chan struct{})
		for _, host := range []string{"a:80", "b:80", "c:80"} {
			defer network.serve(host, hold(release))()
		}
		_, u := newUpstream(t, network.options(), replicas("http://a", "http://b", "http://c"))
		var placed []string
		var open []*upstream.Response
		for range 30 {
			res, err := u.Send(t.Context(), chat("{}"))
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, res)
			placed = append(placed, res.Replica)
		}
		for replica, n := range count(placed) {
			if n != 10 {
				t.Errorf("%s has %d of 30 calls", replica, n)
			}
		}
		close(release)
		for _, res := range open {
			finish(t, res)
		}
		placed = nil
		for range 30 { // one after the other: none is busier than the others
			got, _ := send(t, u, chat("{}"))
			placed = append(placed, got)
		}
		if n := count(placed); len(n) != 3 {
			t.Errorf("calls went to %v", n)
		}
	})
}

func TestRemovedReplicaFinishesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		release := make(chan struct{})
		defer network.serve("a:80", hold(release))()
		defer network.serve("b:80", answer)()
		set, u := newUpstream(t, network.options(), replicas("http://a"))
		res, err := u.Send(t.Context(), chat("{}"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, set, replicas("http://b"))
		if s := state(set, "a"); s != upstream.StateDraining {
			t.Errorf("a is %q, want draining", s)
		}
		for range 10 {
			if got, _ := send(t, u, chat("{}")); got != "b" {
				t.Errorf("a new call went to %s", got)
			}
		}
		time.Sleep(time.Hour)
		close(release)
		if body := finish(t, res); body != `{"ok":true}` {
			t.Errorf("got %q", body)
		}
		if s := state(set, "a"); s != "" {
			t.Errorf("a is %q, want gone", s)
		}

		if err := set.Delete("default"); err != nil {
			t.Error(err)
		}
		if err := set.Delete("default"); !errors.Is(err, upstream.ErrNotFound) {
			t.Errorf("second delete: %v", err)
		}
		if _, ok := set.Get("default"); ok || len(set.List()) != 0 {
			t.Error("a deleted upstream is still there")
		}
		_, err = u.Send(t.Context(), chat("{}"))
		wantUnavailable(t, err, time.Second)
	})
}

func TestReplicasThatStayKeepConnectionsHealthAndVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.serve("a:80", answer)()
		config := replicas("http://a", "http://b")
		set, u := newUpstream(t, network.options(), config)
		for range 10 { // with b down
			send(t, u, chat("{}"))
		}
		if err := u.SetWeightVersion("", registry.IntVersion(7)); err != nil {
			t.Fatal(err)
		}
		config.APIKey = "another"
		put(t, set, config)
		for range 10 {
			send(t, u, chat("{}"))
		}
		if n := network.dialed("a:80"); n != 1 {
			t.Errorf("%d connections to a, want the one that was there", n)
		}
		if n := network.dialed("b:80"); n != 1 {
			t.Errorf("%d dials of b, want none after the first", n)
		}
		for _, s := range set.List()[0].Replicas {
			if s.WeightVersion != registry.IntVersion(7) {
				t.Errorf("%s has version %v", s.Name, s.WeightVersion)
			}
		}
	})
}

func TestRefusalIsRememberedUntilTheUpstreamIsPutAgain(t *testing.T) {
	config := replicas("http://h")
	set, u := newUpstream(t, upstream.Options{}, config)
	if !u.AsksUsage() || u.Refused() != 0 {
		t.Errorf("asks for usage: %v, refused are %b", u.AsksUsage(), u.Refused())
	}
	u.Refuse(1)
	u.Refuse(6)
	if got := u.Refused(); got != 7 {
		t.Errorf("refused are %b after 1 and 110", got)
	}
	put(t, set, config)
	if got := u.Refused(); got != 0 {
		t.Errorf("refused are %b after it was put again", got)
	}
	config.Usage, config.Style = upstream.UsageNever, upstream.StyleSGLang
	put(t, set, config)
	if u.AsksUsage() {
		t.Error("asks though it never must")
	}
	if u.Name() != "default" || u.Style() != upstream.StyleSGLang {
		t.Errorf("got name %q, style %q", u.Name(), u.Style())
	}
}

func TestConfigurationChangesWhileCallsRun(t *testing.T) {
	a, b, c := serve(t, answer), serve(t, answer), serve(t, answer)
	set, u := newUpstream(t, upstream.Options{HealthInterval: 5 * time.Millisecond, ResolveInterval: 5 * time.Millisecond}, replicas(a.URL))
	defer run(t, set)()
	var callers, changes sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		callers.Go(func() {
			for range 50 {
				r := chat("{}")
				r.Affinity = fmt.Sprint(i)
				send(t, u, r)
			}
		})
	}
	configs := []upstream.Config{replicas(a.URL, b.URL), replicas(b.URL), replicas(b.URL, c.URL), replicas(a.URL, "http://"+closedAddr(t))}
	configs[1].Style = upstream.StyleVLLM
	for i := range 2 {
		changes.Go(func() {
			for n := i; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				put(t, set, configs[n%len(configs)])
				set.List()
				if err := u.SetWeightVersion("", registry.IntVersion(int64(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	close(done)
	changes.Wait()
	if n := inflight(set); n != 0 {
		t.Errorf("%d in flight after all calls ended", n)
	}
}

func ExampleSet() {
	set := upstream.NewSet(upstream.Options{})
	defer set.Close()
	err := set.Put("default", upstream.Config{
		Replicas: []upstream.ReplicaConfig{{Name: "gpu-1", URL: "http://127.0.0.1:1/v1"}},
		Style:    upstream.StyleVLLM,
	})
	if err != nil {
		fmt.Println(err)
	}
	u, _ := set.Get("default")
	_, err = u.Send(context.Background(), &upstream.Request{Method: http.MethodGet, Path: "/v1/models", Header: make(http.Header)})
	if e, ok := errors.AsType[*upstream.DialError](err); ok {
		fmt.Println("nothing was sent to", e.Replica)
	}
	// Output: nothing was sent to gpu-1
}
