package frp_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestWrongTokenIsAnAuthError(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version, Token: "sesame"})
			_, err := driver(t, s, frp.Options{Token: "barley"}).Open(t.Context(), tunnel.Local{})
			if _, ok := errors.AsType[*tunnel.AuthError](err); !ok {
				t.Fatalf("got %v; want an AuthError", err)
			}
		})
	}
}

func TestTakenSubdomainIsTransient(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version})
			d := driver(t, s, frp.Options{})
			opened := open(t, d, tunnel.Local{})
			_, err := d.Open(t.Context(), tunnel.Local{Resume: opened.Resume()})
			if _, ok := errors.AsType[*tunnel.TransientError](err); !ok {
				t.Fatalf("got %v; want a TransientError", err)
			}
		})
	}
}

func TestForbiddenPortIsAConfigError(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := frpstest.New(t, frpstest.Options{Version: version})
			_, err := driver(t, s, frp.Options{ProxyType: frp.TypeTCP}).Open(t.Context(), tunnel.Local{Resume: "http://127.0.0.1:9"})
			if _, ok := errors.AsType[*tunnel.ConfigError](err); !ok {
				t.Fatalf("got %v; want a ConfigError", err)
			}
		})
	}
}

func TestRefusalsAreToldApart(t *testing.T) {
	auth := func(err error) bool { _, ok := errors.AsType[*tunnel.AuthError](err); return ok }
	quota := func(err error) bool { _, ok := errors.AsType[*tunnel.QuotaError](err); return ok }
	config := func(err error) bool { _, ok := errors.AsType[*tunnel.ConfigError](err); return ok }
	transient := func(err error) bool { _, ok := errors.AsType[*tunnel.TransientError](err); return ok }
	for _, test := range []struct {
		login, proxy string
		want         func(error) bool
	}{
		{login: "token in login doesn't match token from configuration", want: auth},
		{login: "invalid binding secret", want: auth}, // a plugin's word
		{login: "register control error", want: auth}, // a server that gives no details
		{login: "send Login request to plugin error", want: transient},
		{login: "unexpected error when creating new controller", want: transient},
		{proxy: "exceed the max_ports_per_client", want: quota},
		{proxy: "no available port", want: quota},
		{proxy: "port not allowed", want: config},
		{proxy: "type [http] not supported when vhost http port is not set", want: config},
		{proxy: "subdomain is not supported because this feature is not enabled in server", want: config},
		{proxy: "proxy [a] already exists", want: transient},
		{proxy: "router config conflict", want: transient},
		{proxy: "port already used", want: transient},
		{proxy: "send NewProxy request to plugin error", want: transient},
		{proxy: "new proxy [a] error", want: transient},
	} {
		t.Run(test.login+test.proxy, func(t *testing.T) {
			s := scripted{
				Login: func(string) (string, string, bool) { return "id", test.login, true },
				Proxy: func() string { return test.proxy },
			}
			s.start(t)
			_, err := frp.Connect(t.Context(), frp.ClientOptions{ServerAddr: s.Addr}, func(net.Conn) {})
			if !test.want(err) {
				t.Errorf("got %T: %v", err, err)
			}
		})
	}
}

func TestServerThatNeverAnswersIsGivenUp(t *testing.T) {
	for name, o := range map[string]frp.ClientOptions{
		"plain text": {},
		"TLS":        {TLS: unverified()},
	} {
		t.Run(name, func(t *testing.T) {
			o.ServerAddr = mute(t)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := frp.Connect(ctx, o, func(net.Conn) {}); err == nil || time.Since(began) > 5*time.Second {
				t.Errorf("got %v after %s; want an error when ctx is done", err, time.Since(began))
			}
			o.Timeout = 100 * time.Millisecond
			_, err := frp.Connect(t.Context(), o, func(net.Conn) {})
			if _, ok := errors.AsType[*tunnel.TransientError](err); !ok {
				t.Errorf("got %v; want a TransientError when the time is over", err)
			}
		})
	}
}
