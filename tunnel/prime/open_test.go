package prime_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

func TestRefusalsOfACreationAreTyped(t *testing.T) {
	is := func(kind any) func(error) bool { return func(err error) bool { return errors.As(err, kind) } }
	for _, c := range []struct {
		name  string
		fault controlplane.Fault
		want  func(error) bool
	}{
		{"key", controlplane.Fault{Status: 401}, is(new(*tunnel.AuthError))},
		{"billing", controlplane.Fault{Status: 402}, is(new(*tunnel.AuthError))},
		{"quota", controlplane.Fault{Status: 400, Body: `{"detail":"Maximum number of tunnels"}`}, is(new(*tunnel.QuotaError))},
		{"bad request", controlplane.Fault{Status: 400, Body: `{"detail":"no"}`}, is(new(*tunnel.ConfigError))},
		{"invalid", controlplane.Fault{Status: 422, Body: `{"detail":[{"msg":"no"}]}`}, is(new(*tunnel.ConfigError))},
		{"wrong URL", controlplane.Fault{Status: 404, Body: "<html>"}, is(new(*tunnel.ConfigError))},
		{"rate", controlplane.Fault{Status: 429}, is(new(*tunnel.RateLimitError))},
		{"fault", controlplane.Fault{Status: 500, Body: "<html>"}, is(new(*tunnel.TransientError))},
		{"overload", controlplane.Fault{Status: 503}, is(new(*tunnel.TransientError))},
		{"garbage", controlplane.Fault{Status: 200, Body: "<html>"}, is(new(*tunnel.TransientError))},
		{"empty", controlplane.Fault{Status: 201, Body: "{}"}, is(new(*tunnel.TransientError))},
		{"null", controlplane.Fault{Status: 201, Body: "null"}, is(new(*tunnel.TransientError))},
		{"nothing", controlplane.Fault{}, is(new(*tunnel.TransientError))},
		{"half", controlplane.Fault{Status: 201, Body: `{"tunnel_id":"t-1","url":"ftp://x"}`}, is(new(*tunnel.TransientError))},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, controlplane.Options{}, t.TempDir())
			b.plane.Fail(controlplane.Create, c.fault)
			if _, err := b.Open(t.Context(), local); !c.want(err) {
				t.Errorf("got %T: %v", err, err)
			}
			if got := b.plane.Counts().Creates; got != 1 {
				t.Errorf("got %d attempts; want 1", got)
			}
		})
	}
}

func TestTheProviderSaysHowLongToHoldBackOrTenSeconds(t *testing.T) {
	b := newBench(t, controlplane.Options{}, t.TempDir())
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "99999": 10 * time.Minute,
		"": 10 * time.Second, "soon": 10 * time.Second, "-3": 10 * time.Second,
	} {
		b.plane.Fail(controlplane.Create, controlplane.Fault{Status: 429, Header: http.Header{"Retry-After": {value}}})
		_, err := b.Open(t.Context(), local)
		limited, ok := errors.AsType[*tunnel.RateLimitError](err)
		if !ok || limited.RetryAfter != want {
			t.Errorf("Retry-After %q: got %v; want %s", value, err, want)
		}
	}
}

func TestErrorsDoNotShowTheKey(t *testing.T) {
	b := newBench(t, controlplane.Options{}, t.TempDir())
	b.plane.Fail(controlplane.Create, controlplane.Fault{Status: 401, Body: `{"detail":"the key \"key\"\nis bad"}`})
	_, err := b.Open(t.Context(), local)
	if want := `the (hidden) "(hidden)" is bad`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want it to contain %s", err, want)
	}
}

// What was made without an answer is found by its name and deleted, and never
// asked for a second time.
func TestACreationWithoutAnAnswerIsCleanedUp(t *testing.T) {
	for name, fault := range map[string]controlplane.Fault{
		"connection cut": {Late: true},
		"hanging":        {Late: true, Hang: true},
		"error":          {Late: true, Status: 502, Body: "bad gateway"},
		"garbage":        {Late: true, Status: 201, Body: `{"tunnel_id":`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, controlplane.Options{}, t.TempDir())
				stop := b.run(t.Context())
				defer stop()
				kept, _ := b.open(t)
				b.plane.Fail(controlplane.Create, fault)
				if _, err := b.Open(t.Context(), local); err == nil {
					t.Fatal("opened a tunnel without an answer")
				}
				if got := b.plane.Live(); got != 2 {
					t.Fatalf("got %d tunnels; want 2", got)
				}
				time.Sleep(10 * time.Second)
				if got := b.plane.Live(); got != 1 || b.Left() != 0 {
					t.Errorf("got %d tunnels and %d left to do; want the one that is open", got, b.Left())
				}
				if got := b.plane.Counts().Creates; got != 2 {
					t.Errorf("got %d creations; want 2", got)
				}
				if err := kept.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACreationThatNeverArrivedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		stop := b.run(t.Context())
		defer stop()
		b.plane.Fail(controlplane.Create, controlplane.Fault{})
		if _, err := b.Open(t.Context(), local); err == nil {
			t.Fatal("opened a tunnel without an answer")
		}
		time.Sleep(time.Minute)
		if b.Left() != 1 {
			t.Error("forgotten within a minute; it might still be carried out")
		}
		time.Sleep(3 * time.Minute)
		if b.Left() != 0 {
			t.Error("still looked for after four minutes")
		}
		lists := b.plane.Counts().Lists
		time.Sleep(time.Hour)
		if got := b.plane.Counts().Lists; got != lists {
			t.Errorf("%d questions with nothing left to do", got-lists)
		}
	})
}

func TestACancelledOpenLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{Delays: []time.Duration{1500 * time.Millisecond}}, t.TempDir())
		cause := errors.New("nobody wants it any more")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		start := time.Now()
		if _, err := b.Open(ctx, local); !errors.Is(err, cause) {
			t.Errorf("got %v; want the cause of the cancellation", err)
		}
		if took := time.Since(start); took > 2*time.Second || b.plane.Live() != 0 || b.plane.Counts().Created != 1 {
			t.Errorf("after %s there are %d tunnels", took, b.plane.Live())
		}
	})
}

func TestACancelledOpenDoesNotWaitForAHangingControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		b.plane.Fail(controlplane.Create, controlplane.Fault{Hang: true, Late: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := b.Open(ctx, local)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 7*time.Second {
			t.Errorf("got %v after %s", err, took)
		}
		stop := b.run(t.Context())
		time.Sleep(5 * time.Second)
		stop()
		if got := b.plane.Live(); got != 0 {
			t.Errorf("%d tunnels left; want none", got)
		}
	})
}

func TestTheFirstLoginIsTriedSixTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{}, t.TempDir())
		b.refuse = 5
		opened, _ := b.open(t)
		if err := opened.Close(t.Context()); err != nil || b.logins != 6 {
			t.Errorf("got %d logins, %v; want 6", b.logins, err)
		}
		b.logins, b.refuse = 0, 1000
		_, err := b.Open(t.Context(), local)
		if _, ok := errors.AsType[*tunnel.TransientError](err); !ok || b.logins != 6 {
			t.Errorf("got %d logins, %v; want 6 and a transient error", b.logins, err)
		}
		if _, final := errors.AsType[*tunnel.AuthError](err); final {
			t.Error("refused credentials of one tunnel are final, which they are not for the next")
		}
		if got := b.plane.Live(); got != 0 {
			t.Errorf("%d tunnels left; want none", got)
		}
	})
}

func TestATunnelMayTakeLongToBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, controlplane.Options{Delays: []time.Duration{45 * time.Second}}, t.TempDir())
		opened, _ := b.open(t)
		if err := opened.Close(t.Context()); err != nil || b.plane.Counts().Creates != 1 {
			t.Errorf("got %v after %d creations", err, b.plane.Counts().Creates)
		}
	})
}

func TestTheTunnelsOfATeamAreFoundAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := controlplane.New(controlplane.Options{ServerHost: "frps.test"})
		d, err := prime.New(prime.Options{APIKey: "key", TeamID: "team", Transport: inProcess{plane}})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{Driver: d, plane: plane, links: make(map[string]*link)}
		d.Connect(b.login)
		stop := b.run(t.Context())
		defer stop()
		opened, _ := b.open(t)
		if got := plane.Tunnels()[0].TeamID; got != "team" {
			t.Errorf("got team %q", got)
		}
		plane.Fail(controlplane.Create, controlplane.Fault{Late: true})
		if _, err := d.Open(t.Context(), local); err == nil {
			t.Error("opened a tunnel without an answer")
		}
		time.Sleep(10 * time.Second)
		if got := plane.Live(); got != 1 {
			t.Errorf("got %d tunnels; want the one that is open", got)
		}
		if err := opened.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
