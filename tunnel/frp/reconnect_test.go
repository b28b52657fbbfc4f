package frp_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// alert notices a silent peer soon.
func alert(addr string) frp.ClientOptions {
	return frp.ClientOptions{
		ServerAddr: addr,
		Proxy:      frp.Proxy{Name: "a", Type: frp.TypeHTTP, Subdomain: "a"},
		URL:        "http://a.tunnels.test",
		KeepAlive:  200 * time.Millisecond,
		Timeout:    time.Second,
	}
}

func TestFrozenServerIsNoticedAndComesBack(t *testing.T) {
	t.Parallel()
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version})
			o := alert(s.Addr())
			o.URL = s.SubdomainURL()
			o.TLS = unverified()
			opened, err := frp.Connect(t.Context(), o, hello(t))
			if err != nil {
				t.Fatal(err)
			}
			closeInTheEnd(t, opened)
			s.Freeze()
			await(t, opened, tunnel.Reconnecting)
			s.Thaw()
			await(t, opened, tunnel.Up)
			answers(t, visitor(t, s), "http://a.tunnels.test")
		})
	}
}

func TestClientThatVanishedGetsItsNameBack(t *testing.T) {
	t.Parallel()
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version, KeepAlive: time.Second})
			lossy := newLink(t, s.Addr())
			opened, err := frp.Connect(t.Context(), alert(lossy.Addr()), hello(t))
			if err != nil {
				t.Fatal(err)
			}
			closeInTheEnd(t, opened)
			lossy.Cut()
			await(t, opened, tunnel.Reconnecting)
			began := time.Now()
			await(t, opened, tunnel.Up)
			t.Logf("back after %s", time.Since(began))
			answers(t, visitor(t, s), "http://a.tunnels.test")
		})
	}
}

func TestRunIDIsNotUsedAgainAfterALoginWithoutAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var logins []string
	s := scripted{Login: func(runID string) (string, string, bool) {
		mu.Lock()
		defer mu.Unlock()
		logins = append(logins, runID)
		switch len(logins) {
		case 1:
			return "first", "", true
		case 2, 4: // holds its answer back
			return "", "", false
		case 3:
			return "second", "", true
		default:
			return "third", "", true
		}
	}}
	s.start(t)
	lossy := newLink(t, s.Addr)
	o := alert(lossy.Addr())
	o.Timeout = 200 * time.Millisecond
	opened, err := frp.Connect(t.Context(), o, func(net.Conn) {})
	if err != nil {
		t.Fatal(err)
	}
	closeInTheEnd(t, opened)
	for range 2 {
		lossy.Cut()
		await(t, opened, tunnel.Reconnecting)
		await(t, opened, tunnel.Up)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"", "first", "", "second", ""}; !slices.Equal(logins, want) {
		t.Errorf("logged in as %q; want %q", logins, want)
	}
}

func TestNameThatStaysTakenIsLost(t *testing.T) {
	t.Parallel()
	for reason, wait := range map[string]time.Duration{
		"proxy [a] already exists": 500 * time.Millisecond, // then it is asked for again
		"port not allowed":         time.Hour,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			refusals := 0
			s := scripted{Login: func(string) (string, string, bool) { return "id", "", true }}
			s.Proxy = func() string {
				mu.Lock()
				defer mu.Unlock()
				refusals++
				if refusals == 1 {
					return ""
				}
				return reason
			}
			s.start(t)
			lossy := newLink(t, s.Addr)
			o := alert(lossy.Addr())
			o.Patience = wait
			opened, err := frp.Connect(t.Context(), o, func(net.Conn) {})
			if err != nil {
				t.Fatal(err)
			}
			closeInTheEnd(t, opened)
			lossy.Cut()
			<-opened.Done()
			lost, ok := errors.AsType[*tunnel.LostError](opened.Err())
			if !ok || lost.Reason != "proxy refused: "+reason {
				t.Errorf("done with %v", opened.Err())
			}
		})
	}
}

func TestRefusedLoginOfALostTunnelIsFinalUnlessAskedFor(t *testing.T) {
	t.Parallel()
	reconnect := func(t *testing.T, refused func(context.Context, error) error) tunnel.Tunnel {
		t.Helper()
		var mu sync.Mutex
		logins := 0
		s := scripted{Login: func(string) (string, string, bool) {
			mu.Lock()
			defer mu.Unlock()
			logins++
			if logins == 2 || logins == 3 {
				return "", "unknown tunnel", true
			}
			return "id", "", true
		}}
		s.start(t)
		lossy := newLink(t, s.Addr)
		o := alert(lossy.Addr())
		o.Refused = refused
		opened, err := frp.Connect(t.Context(), o, func(net.Conn) {})
		if err != nil {
			t.Fatal(err)
		}
		closeInTheEnd(t, opened)
		lossy.Cut()
		await(t, opened, tunnel.Reconnecting)
		return opened
	}

	opened := reconnect(t, nil)
	<-opened.Done()
	if lost, ok := errors.AsType[*tunnel.LostError](opened.Err()); !ok || lost.Reason != "login refused: unknown tunnel" {
		t.Errorf("done with %v", opened.Err())
	}

	opened = reconnect(t, func(context.Context, error) error { return tunnel.ErrExpired })
	<-opened.Done()
	if !errors.Is(opened.Err(), tunnel.ErrExpired) {
		t.Errorf("done with %v; want what was asked for", opened.Err())
	}

	opened = reconnect(t, func(_ context.Context, err error) error {
		if _, ok := errors.AsType[*tunnel.AuthError](err); !ok {
			t.Errorf("asked about %v; want an AuthError", err)
		}
		return nil
	})
	await(t, opened, tunnel.Up)
}

func TestLoginsAtATimeAreBounded(t *testing.T) {
	const limit, clients = 3, 12
	var mu sync.Mutex
	running, most, came := 0, 0, 0
	together := make(chan struct{}) // closed when as many have come as may
	s := scripted{Login: func(string) (string, string, bool) {
		mu.Lock()
		running, came = running+1, came+1
		most = max(most, running)
		wait := together
		if came%limit == 0 {
			close(together)
			together = make(chan struct{})
		}
		mu.Unlock()
		<-wait
		mu.Lock()
		running--
		mu.Unlock()
		return "id", "", true
	}}
	s.start(t)
	logins := frp.NewLogins(limit)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			o := frp.ClientOptions{ServerAddr: s.Addr, Logins: logins}
			opened, err := frp.Connect(t.Context(), o, func(net.Conn) {})
			if err != nil {
				t.Error(err)
				return
			}
			_ = opened.Close(t.Context())
		})
	}
	all.Wait()
	if most != limit {
		t.Errorf("%d logins at a time; want %d", most, limit)
	}
}
