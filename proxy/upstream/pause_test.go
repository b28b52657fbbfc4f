package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// sent is how a call in a goroutine of its own ended.
type sent struct {
	version registry.Version
	err     error
}

// later makes a call that a pause may hold.
func later(ctx context.Context, u *upstream.Upstream) <-chan sent {
	ended := make(chan sent, 1)
	go func() {
		res, err := u.Send(ctx, chat("{}"))
		if err != nil {
			ended <- sent{err: err}
			return
		}
		ended <- sent{version: res.Version, err: res.Body.Close()}
	}()
	return ended
}

// pausable is an upstream in memory whose replica answers when release is closed.
func pausable(t *testing.T, c upstream.Config) (u *upstream.Upstream, calls func() int, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	began := make(chan struct{}, 1000)
	listener := scripted.NewNetwork()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that a client leaves
		began <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c.Replicas = []upstream.ReplicaConfig{{Name: "r0", URL: "http://model"}}
	_, u = newUpstream(t, upstream.Options{Dial: listener.DialContext}, c)
	return u, func() int { return len(began) }, release
}

func TestPauseHoldsCallsUntilResumedWithTheNewWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, calls, release := pausable(t, upstream.Config{})
		close(release)
		if err := u.Pause(t.Context(), upstream.Pause{}); err != nil {
			t.Fatal(err)
		}
		first, second := later(t.Context(), u), later(t.Context(), u)
		synctest.Wait()
		if got := u.Status(); calls() != 0 || got.Inflight != 0 || got.Paused == nil || got.Paused.Held != 2 {
			t.Errorf("while paused: got %d calls, %+v; want none sent and 2 held", calls(), got.Paused)
		}
		u.Resume(registry.StringVersion("step-18"))
		for _, ended := range []<-chan sent{first, second} {
			if got := <-ended; got.err != nil || got.version != registry.StringVersion("step-18") {
				t.Errorf("held call: got version %v, %v; want it sent with the new weights", got.version, got.err)
			}
		}
		if got := u.Status(); got.Paused != nil || got.Inflight != 0 {
			t.Errorf("afterwards: got %+v, %d in flight; want neither", got.Paused, got.Inflight)
		}
	})
}

func TestHeldCallWhoseClientLeavesIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, calls, release := pausable(t, upstream.Config{})
		close(release)
		_ = u.Pause(t.Context(), upstream.Pause{})
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := later(ctx, u)
		synctest.Wait()
		cancel(left)
		if got := <-ended; !errors.Is(got.err, left) {
			t.Errorf("got %v; want the cause", got.err)
		}
		u.Resume(registry.Version{})
		synctest.Wait()
		if calls() != 0 {
			t.Errorf("got %d calls; want none", calls())
		}
	})
}

func TestPauseThatWaitsReturnsWithTheLastCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _, release := pausable(t, upstream.Config{})
		call := later(t.Context(), u)
		synctest.Wait()
		paused := make(chan error, 1)
		go func() { paused <- u.Pause(t.Context(), upstream.Pause{Inflight: upstream.InflightWait}) }()
		synctest.Wait()
		select {
		case err := <-paused:
			t.Fatalf("pause returned %v with a call in flight", err)
		default:
		}
		close(release)
		if got := <-call; got.err != nil {
			t.Errorf("call in flight: %v", got.err)
		}
		if err := <-paused; err != nil {
			t.Errorf("pause: got %v; want nil", err)
		}
		u.Resume(registry.Version{})
	})
}

func TestPauseThatAbortsCancelsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _, _ := pausable(t, upstream.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		request := chat("{}")
		request.Caller = caller{cancel: cancel}
		ended := make(chan error, 1)
		go func() {
			_, err := u.Send(ctx, request)
			ended <- err
		}()
		synctest.Wait()
		if err := u.Pause(t.Context(), upstream.Pause{Inflight: upstream.InflightAbort}); err != nil {
			t.Errorf("pause: %v", err)
		}
		if aborted, ok := errors.AsType[*upstream.AbortedError](<-ended); !ok || aborted.Upstream != "default" {
			t.Errorf("call in flight: got %v; want an AbortedError", aborted)
		}
		if got := u.Status().Inflight; got != 0 {
			t.Errorf("got %d in flight; want 0", got)
		}
		u.Resume(registry.Version{})
	})
}

func TestPauseEndsByItself(t *testing.T) {
	for _, end := range []upstream.PauseEnd{upstream.EndResume, upstream.EndReject} {
		t.Run(string(end), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, _, release := pausable(t, upstream.Config{})
				running := later(t.Context(), u)
				synctest.Wait()
				start := time.Now()
				err := u.Pause(t.Context(), upstream.Pause{Inflight: upstream.InflightWait, Timeout: time.Minute, OnTimeout: end})
				if !errors.Is(err, upstream.ErrPauseOver) || time.Since(start) != time.Minute {
					t.Errorf("got %v after %s; want ErrPauseOver after 1m", err, time.Since(start))
				}
				close(release)
				<-running
				got := <-later(t.Context(), u)
				paused, rejected := errors.AsType[*upstream.PausedError](got.err)
				if rejected != (end == upstream.EndReject) || !rejected && got.err != nil {
					t.Errorf("next call: got %v", got.err)
				}
				if rejected && paused.RetryAfter != 0 {
					t.Errorf("retry after: got %s; want 0, nobody knows", paused.RetryAfter)
				}
				u.Resume(registry.Version{})
			})
		})
	}
}

func TestPauseThatRejectsSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, calls, _ := pausable(t, upstream.Config{})
		_ = u.Pause(t.Context(), upstream.Pause{Mode: upstream.PauseReject, Timeout: 90 * time.Second})
		time.Sleep(30 * time.Second)
		for _, err := range []error{u.Rejects(), (<-later(t.Context(), u)).err} {
			if paused, ok := errors.AsType[*upstream.PausedError](err); !ok || paused.RetryAfter != time.Minute {
				t.Errorf("got %v; want a PausedError for another minute", err)
			}
		}
		if calls() != 0 {
			t.Errorf("got %d calls; want none", calls())
		}
		u.Resume(registry.Version{})
		if err := u.Rejects(); err != nil {
			t.Errorf("after resume: %v", err)
		}
	})
}

func TestAnotherPauseTakesThePlaceOfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _, release := pausable(t, upstream.Config{})
		close(release)
		_ = u.Pause(t.Context(), upstream.Pause{Timeout: time.Minute})
		held := later(t.Context(), u)
		synctest.Wait()
		_ = u.Pause(t.Context(), upstream.Pause{Timeout: time.Hour})
		time.Sleep(30 * time.Minute)
		select {
		case got := <-held:
			t.Errorf("held call ended with %v; want it held by the second pause", got.err)
		default:
		}
		_ = u.Pause(t.Context(), upstream.Pause{Mode: upstream.PauseReject})
		if _, ok := errors.AsType[*upstream.PausedError]((<-held).err); !ok {
			t.Error("held call: want it rejected by the third")
		}
		u.Resume(registry.Version{})
	})
}

func TestEngineThatIsPausedIsNotOutForItsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := scripted.NewNetwork()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })}
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		set, u := newUpstream(t, upstream.Options{Dial: listener.DialContext}, upstream.Config{
			Style: upstream.StyleVLLM, Replicas: []upstream.ReplicaConfig{{Name: "r0", URL: "http://model"}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- set.Run(ctx) }()
		_ = u.Pause(t.Context(), upstream.Pause{})
		time.Sleep(4 * time.Minute)
		if got := u.Status().Replicas[0].State; got != upstream.StateUp {
			t.Errorf("paused: got %s; want up", got)
		}
		u.Resume(registry.Version{})
		time.Sleep(time.Minute)
		if got := u.Status().Replicas[0].State; got != upstream.StateDown {
			t.Errorf("resumed: got %s; want down", got)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestDeletedUpstreamLetsHeldCallsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, u := newUpstream(t, upstream.Options{}, replicas("http://127.0.0.1:9"))
		_ = u.Pause(t.Context(), upstream.Pause{})
		held := later(t.Context(), u)
		synctest.Wait()
		if err := set.Delete("default"); err != nil {
			t.Fatal(err)
		}
		if _, ok := errors.AsType[*upstream.UnavailableError]((<-held).err); !ok {
			t.Error("held call: want an UnavailableError")
		}
	})
}
