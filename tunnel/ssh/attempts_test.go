package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ssh"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

// peer listens and treats every connection as told.
func peer(t *testing.T, treat func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { treat(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func TestPeersThatAreNoSSHServersAreTransient(t *testing.T) {
	sshd := sshdtest.Start(t)
	for name, treat := range map[string]func(net.Conn){
		"silent":   func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"html":     func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n<html>") },
		"stops":    func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n"); _, _ = io.Copy(io.Discard, c) },
		"hangs up": func(net.Conn) {},
	} {
		o := options(sshd)
		o.Addr, o.ConnectTimeout = peer(t, treat), 300*time.Millisecond
		if err := openError(t, o); !is[*tunnel.TransientError](err) {
			t.Errorf("%s: got %T %v; want a TransientError", name, err, err)
		}
	}
	o := options(sshd)
	sshd.Kill(t)
	if err := openError(t, o); !is[*tunnel.TransientError](err) {
		t.Errorf("nobody: got %T %v; want a TransientError", err, err)
	}
}

func TestFewLogInAtOnce(t *testing.T) {
	var now, most atomic.Int32
	o := options(sshdtest.Start(t))
	o.ConnectTimeout = 100 * time.Millisecond
	o.Addr = peer(t, func(c net.Conn) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = io.Copy(io.Discard, c)
		now.Add(-1)
	})
	d := driver(t, o)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := d.Open(t.Context(), tunnel.Local{}); !is[*tunnel.TransientError](err) {
				t.Errorf("got %T %v; want a TransientError", err, err)
			}
		})
	}
	all.Wait()
	// The end of a connection may be seen later than the beginning of the next.
	if got := most.Load(); got < 2 || got > 16 {
		t.Errorf("got %d connections at once; want about 8", got)
	}
}

func TestGivingUpEndsAnAttemptAtOnce(t *testing.T) {
	reached := make(chan struct{})
	o := options(sshdtest.Start(t))
	o.Addr = peer(t, func(c net.Conn) { close(reached); _, _ = io.Copy(io.Discard, c) })
	gone := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-reached
		cancel(gone)
	}()
	began := time.Now()
	if _, err := driver(t, o).Open(ctx, tunnel.Local{}); !errors.Is(err, gone) || time.Since(began) > 5*time.Second {
		t.Errorf("got %v after %s; want the cause at once", err, time.Since(began))
	}
}

func TestForwardingThatIsNotAllowedIsAConfigError(t *testing.T) {
	for _, line := range []string{"AllowTcpForwarding no", "PermitListen none", "DisableForwarding yes"} {
		if err := openError(t, options(sshdtest.Start(t, line))); !is[*tunnel.ConfigError](err) {
			t.Errorf("%s: got %T %v; want a ConfigError", line, err, err)
		}
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	good := ssh.Options{Addr: "gw.example:22", User: "me", PublicURL: "https://gw.example:{port}/"}
	if _, err := ssh.New(good); err != nil {
		t.Errorf("got %v; want none", err)
	}
	for i, change := range []func(*ssh.Options){
		func(o *ssh.Options) { o.Addr = "" },
		func(o *ssh.Options) { o.Addr = "gw.example" },
		func(o *ssh.Options) { o.User = "" },
		func(o *ssh.Options) { o.PublicURL = "" },
		func(o *ssh.Options) { o.PublicURL = "https://gw.example" },
		func(o *ssh.Options) { o.PublicURL = "gw.example:{port}" },
		func(o *ssh.Options) { o.PublicURL = "ssh://gw.example:{port}" },
	} {
		o := good
		change(&o)
		if _, err := ssh.New(o); !is[*tunnel.ConfigError](err) {
			t.Errorf("%d: got %v; want a ConfigError", i, err)
		}
	}
}

func TestURLsAreMadeFromTheTemplate(t *testing.T) {
	o := options(sshdtest.Start(t))
	o.PublicURL = "https://p{port}.gw.example/base/"
	up := open(t, o, text("hello"))
	if want := fmt.Sprintf("https://p%s.gw.example/base", up.Resume()); up.URL() != want {
		t.Errorf("got %s; want %s", up.URL(), want)
	}
	if driver(t, o).Name() != "ssh" {
		t.Error("wrong name")
	}
}
