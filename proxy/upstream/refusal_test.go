package upstream_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// refusals is a way for refusals to take: an upstream and what it is reached by.
type refusals struct {
	name string
	u    *upstream.Upstream
	set  *upstream.Set
}

// everyWay serves h in every way that replicas are reached in.
func everyWay(t *testing.T, h http.HandlerFunc) []refusals {
	t.Helper()
	plain := serve(t, h)
	old, oldOptions := secure(t, h, false)
	multiplexed, newOptions := secure(t, h, true)
	proxied := upstream.Options{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(plain.URL) }}
	var ways []refusals
	for _, way := range []struct {
		name    string
		server  *httptest.Server
		options upstream.Options
	}{{"HTTP/1.1", plain, upstream.Options{}}, {"proxy", plain, proxied}, {"TLS", old, oldOptions}, {"HTTP/2", multiplexed, newOptions}} {
		set, u := newUpstream(t, way.options, replicas(way.server.URL))
		ways = append(ways, refusals{way.name, u, set})
	}
	return ways
}

// A refusal that waits for the rest of the request has its status and what it has
// said passed on, whether the rest is sent or not.
func TestARefusalThatWaitsForItsRequestEnds(t *testing.T) {
	over := make(chan struct{})
	for _, c := range []struct {
		name string
		size int
		wait func(r *http.Request)
	}{
		{"for the rest of it", 8 << 20, func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"for nothing, reading nothing", 16 << 20, func(r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-over:
			}
		}},
	} {
		ways := everyWay(t, func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex() // which HTTP/2 always is
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no")
			_ = control.Flush()
			c.wait(r)
		})
		for _, way := range ways {
			t.Run(c.name+", "+way.name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				res, err := way.u.Send(t.Context(), chat(repeat("x", c.size)))
				if err != nil {
					t.Fatal(err)
				}
				if got := finish(t, res); res.StatusCode != http.StatusForbidden || got != "no" {
					t.Errorf("got %d %q", res.StatusCode, got)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if n := inflight(way.set); n != 0 {
					t.Errorf("%d in flight", n)
				}
			})
		}
	}
	t.Cleanup(func() { close(over) }) // before the servers close, which wait for that
}

// What is being said is listened to, however long it takes; only silence ends it.
func TestARefusalOfAnUnwrittenRequestIsHeardToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options, wait := http2Replica(t, func(_ int, p *http2Peer) {
			var speaking sync.WaitGroup
			defer speaking.Wait()
			for {
				kind, flags, stream, ok := p.frame()
				switch {
				case !ok:
					return
				case kind != frameHeaders || flags&flagEndStream != 0:
				case stream == 1:
					p.refuse(stream)
					speaking.Go(func() {
						for range 5 {
							time.Sleep(900 * time.Millisecond)
							p.write(frameData, 0, stream, []byte("no"))
						}
					})
				default:
					p.refuse(stream)
					p.write(frameData, 0, stream, []byte("never"))
					p.write(frameReset, 0, stream, []byte{0, 0, 0, 8}) // CANCEL
				}
			}
		})
		set, u := newUpstream(t, options, replicas("https://replica.example"))
		for _, want := range []struct {
			body string
			took time.Duration
		}{{strings.Repeat("no", 5), 5500 * time.Millisecond}, {"never", 0}} {
			began := time.Now()
			res, err := u.Send(t.Context(), chat(repeat("x", 1<<20)))
			if err != nil {
				t.Fatal(err)
			}
			got := finish(t, res)
			if took := time.Since(began); res.StatusCode != http.StatusForbidden || got != want.body || took != want.took {
				t.Errorf("got %d %q after %v, want %q after %v", res.StatusCode, got, took, want.body, want.took)
			}
		}
		set.Close()
		wait()
	})
}

// A request that was written has been heard: its refusal may take its time, and is
// whole or broken.
func TestARefusalOfAWrittenRequestIsWaitedFor(t *testing.T) {
	var breaks atomic.Bool
	ways := everyWay(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		if r.ProtoMajor == 2 { // then the rest would not come if it was refused before
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusForbidden)
		_ = control.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(1200 * time.Millisecond) // longer than one that was not heard is listened to
		if breaks.Load() {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "no")
	})
	for _, broken := range []bool{false, true} {
		breaks.Store(broken)
		var calls sync.WaitGroup
		for _, way := range ways {
			calls.Go(func() {
				res, err := way.u.Send(t.Context(), chat(repeat("x", 1<<20)))
				if err != nil {
					t.Errorf("%s: %v", way.name, err)
					return
				}
				defer res.Body.Close()
				if got, err := io.ReadAll(res.Body); !broken && string(got) != "no" || (err != nil) != broken {
					t.Errorf("%s: got %q, %v", way.name, got, err)
				}
			})
		}
		calls.Wait()
	}
}

// What nobody reads of a refused request takes the room that HTTP/2 gives all requests
// on a connection together, until its stream ends.
func TestARefusedRequestThatNobodyReadsHoldsUpNoOthers(t *testing.T) {
	over := make(chan struct{})
	server, options := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 1<<20 {
			answer(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}), true)
	defer close(over)
	_, u := newUpstream(t, options, replicas(server.URL))
	refused, err := u.Send(t.Context(), chat(repeat("x", 4<<20)))
	if err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			res, err := u.Send(ctx, chat(repeat("x", 64<<10)))
			if err != nil {
				t.Error(err)
				return
			}
			finish(t, res)
		})
	}
	finish(t, refused)
	others.Wait()
}
