package upstream_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

func TestThreeFailedHealthChecksTakeAReplicaOutUntilOneSucceeds(t *testing.T) {
	for _, style := range []upstream.Style{upstream.StyleVLLM, upstream.StyleSGLang} {
		synctest.Test(t, func(t *testing.T) {
			network := newMemory()
			var status, probes atomic.Int64
			status.Store(http.StatusOK)
			defer network.serve("a:80", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/health" {
					answer(w, r)
					return
				}
				probes.Add(1)
				w.WriteHeader(int(status.Load()))
			})()
			config := replicas("http://a/api/v1")
			config.Style = style
			set, u := newUpstream(t, network.options(), config)
			defer run(t, set)()

			time.Sleep(11 * time.Second)
			status.Store(http.StatusServiceUnavailable)
			time.Sleep(20 * time.Second) // two strikes
			status.Store(http.StatusNotFound)
			time.Sleep(10 * time.Second) // alive, whatever it says
			status.Store(http.StatusServiceUnavailable)
			time.Sleep(20 * time.Second)
			send(t, u, chat("{}"))
			time.Sleep(10 * time.Second) // the third
			_, err := u.Send(t.Context(), chat("{}"))
			wantUnavailable(t, err, 10*time.Second)
			if s := set.List()[0].Replicas[0]; s.State != upstream.StateDown || !strings.Contains(s.LastError, "503") {
				t.Errorf("replica is %+v", s)
			}
			status.Store(http.StatusOK)
			time.Sleep(10 * time.Second)
			send(t, u, chat("{}"))
			if s := set.List()[0].Replicas[0]; s.State != upstream.StateUp || s.LastError != "" {
				t.Errorf("replica is %+v", s)
			}
			if n := probes.Load(); n != 8 {
				t.Errorf("%d health checks in 81 s, want 8", n)
			}
		})
	}
}

func TestHealthChecksThatHangAndReplicasThatReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		config := replicas("http://a")
		config.Style = upstream.StyleVLLM
		set, u := newUpstream(t, network.options(), config)
		defer run(t, set)()
		_, err := u.Send(t.Context(), chat("{}"))
		wantDialError(t, err, false)
		time.Sleep(35 * time.Second) // refused dials are failed health checks too
		defer network.serve("a:80", answer)()
		time.Sleep(10 * time.Second)
		if s := state(set, "a"); s != upstream.StateUp {
			t.Errorf("a is %s without a call to it", s)
		}
		network.silence("a:80", true)
		time.Sleep(45 * time.Second)
		if s := state(set, "a"); s != upstream.StateDown {
			t.Errorf("a is %s though its health checks hang", s)
		}
		put(t, set, replicas("http://a")) // of a style without health checks
		network.silence("a:80", false)
		time.Sleep(21 * time.Second) // the dial under way, and the longest backoff
		send(t, u, chat("{}"))
	})
}
