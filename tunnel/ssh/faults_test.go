package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ssh"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

func TestALostConnectionComesBackUnderTheSameURL(t *testing.T) {
	sshd := sshdtest.Start(t)
	up := open(t, options(sshd), text("hello"))
	for range 3 {
		if got, err := get(t, up.URL()); err != nil || got != "hello" {
			t.Fatalf("got %q, %v", got, err)
		}
		sshd.Kill(t)
		wants(t, up, tunnel.Reconnecting)
		if _, err := get(t, up.URL()); err == nil {
			t.Error("an answer without an SSH server")
		}
		sshd.Restart(t)
		wants(t, up, tunnel.Up)
	}
}

func TestEightTunnelsOfWhichOneIsCutLoseNothingElse(t *testing.T) {
	sshd := sshdtest.Start(t)
	tunnels := make([]tunnel.Tunnel, 8)
	for i := range tunnels {
		tunnels[i] = open(t, options(sshd), text(strconv.Itoa(i)))
	}
	sshd.Cut(t)
	for i, up := range tunnels {
		eventually(t, "answer", func() bool {
			got, err := get(t, up.URL())
			if err == nil && got != strconv.Itoa(i) {
				t.Fatalf("%d: got the answer of %q", i, got)
			}
			return err == nil
		})
		if up.Err() != nil {
			t.Errorf("%d: got %v", i, up.Err())
		}
	}
}

func TestAFrozenServerIsNoticedAndItsPortComesBack(t *testing.T) {
	sshd := sshdtest.Start(t)
	o := options(sshd)
	o.Keepalive = 500 * time.Millisecond
	up := open(t, o, text("hello"))
	sshd.Signal(t, syscall.SIGSTOP)
	began := time.Now()
	wants(t, up, tunnel.Reconnecting)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("noticed after %s", took)
	}
	// The frozen session holds the port until it finds out.
	eventually(t, "refusal", func() bool { return strings.Contains(sshd.Log(t), "already in use") })
	sshd.Signal(t, syscall.SIGCONT)
	wants(t, up, tunnel.Up)
	if got, err := get(t, up.URL()); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAQuietTunnelStaysUp(t *testing.T) {
	o := options(sshdtest.Start(t))
	o.Keepalive = 300 * time.Millisecond
	up := open(t, o, text("hello"))
	changed := up.Changed()
	select {
	case <-changed:
		t.Errorf("got %s", up.State())
	case <-time.After(3 * o.Keepalive): // longer than it may be silent
	}
}

func TestAPortThatStaysTakenIsALostURL(t *testing.T) {
	sshd := sshdtest.Start(t)
	o := options(sshd)
	o.Keepalive, o.ReconnectTimeout = 500*time.Millisecond, 500*time.Millisecond
	up := open(t, o, text("hello"))
	sshd.Signal(t, syscall.SIGSTOP) // and never goes on
	within(t, 20*time.Second, up.Done())
	lost, ok := errors.AsType[*tunnel.LostError](up.Err())
	if !ok || !strings.Contains(lost.Reason, "may be taken") {
		t.Errorf("got %v; want a LostError about the port", up.Err())
	}
}

func TestAServerThatStaysAwayIsALostURL(t *testing.T) {
	sshd := sshdtest.Start(t)
	o := options(sshd)
	o.ReconnectTimeout = 300 * time.Millisecond
	up := open(t, o, text("hello"))
	sshd.Kill(t)
	within(t, 20*time.Second, up.Done())
	if !is[*tunnel.LostError](up.Err()) {
		t.Errorf("got %v; want a LostError", up.Err())
	}
}

func TestAServerWithAnotherKeyIsNotReconnectedTo(t *testing.T) {
	sshd := sshdtest.Start(t)
	up := open(t, options(sshd), text("hello"))
	sshd.Kill(t)
	sshdtest.Key(t, sshd.Dir+"/host")
	sshd.Restart(t)
	within(t, 20*time.Second, up.Done())
	if !is[*tunnel.LostError](up.Err()) {
		t.Errorf("got %v; want a LostError", up.Err())
	}
}

func TestForwardingThatIsNotAllowedIsAConfigError(t *testing.T) {
	for _, line := range []string{"AllowTcpForwarding no", "PermitListen none", "DisableForwarding yes"} {
		if err := openError(t, options(sshdtest.Start(t, line))); !is[*tunnel.ConfigError](err) {
			t.Errorf("%s: got %T %v; want a ConfigError", line, err, err)
		}
	}
}

func TestATunnelResumesUnderItsPort(t *testing.T) {
	sshd := sshdtest.Start(t)
	l := tunnel.Local{Server: "srv-1", Serve: serve(t, text("hello"))}
	first := openLocal(t, options(sshd), l)
	l.Resume = first.Resume()
	if _, err := driver(t, options(sshd)).Open(t.Context(), l); !is[*tunnel.TransientError](err) {
		t.Errorf("while the port is taken: got %T %v; want a TransientError", err, err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var second tunnel.Tunnel
	eventually(t, "free port", func() bool {
		var err error
		second, err = driver(t, options(sshd)).Open(t.Context(), l)
		return err == nil
	})
	defer func() { _ = second.Close(context.Background()) }()
	if second.URL() != first.URL() || second.Resume() != l.Resume {
		t.Errorf("got %s; want %s", second.URL(), first.URL())
	}
	if got, err := get(t, second.URL()); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, garbage := range []string{"x", "0", "65536", "-1"} {
		l.Resume = garbage
		if _, err := driver(t, options(sshd)).Open(t.Context(), l); !is[*tunnel.ConfigError](err) {
			t.Errorf("resume %q: got %v; want a ConfigError", garbage, err)
		}
	}
}

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

func TestCloseLeavesNothing(t *testing.T) {
	sshd := sshdtest.Start(t)
	up := open(t, options(sshd), text("hello"))
	if _, err := get(t, up.URL()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := up.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	within(t, time.Second, up.Done())
	if !errors.Is(up.Err(), tunnel.ErrClosed) {
		t.Errorf("got %v; want ErrClosed", up.Err())
	}
	eventually(t, "free port", func() bool { _, err := get(t, up.URL()); return err != nil })
	eventually(t, "end of the session", func() bool { return len(sshd.Sessions(t)) == 0 })
}

func TestCloseWhileReconnecting(t *testing.T) {
	sshd := sshdtest.Start(t)
	up := open(t, options(sshd), text("hello"))
	sshd.Kill(t)
	wants(t, up, tunnel.Reconnecting)
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(up.Err(), tunnel.ErrClosed) {
		t.Errorf("got %v; want ErrClosed", up.Err())
	}
}

func TestCloseIsBoundedWithAServerThatHangs(t *testing.T) {
	sshd := sshdtest.Start(t)
	called := make(chan struct{})
	up := open(t, options(sshd), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
	}))
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { _, _ = get(t, up.URL()) })
	<-called
	sshd.Signal(t, syscall.SIGSTOP)
	defer sshd.Signal(t, syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := up.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; want that there was no time", err)
	}
	within(t, 5*time.Second, up.Done())
	if err := up.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatWasAnsweredBeforeCloseArrives(t *testing.T) {
	const size = 4 << 20
	written := make(chan struct{})
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				close(written)
			}
		},
	}
	up := openLocal(t, options(sshdtest.Start(t)), tunnel.Local{Serve: serveBy(t, server)})
	answer, err := client(t).Get(up.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var closing sync.WaitGroup
	closing.Go(func() {
		<-written
		if err := up.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || n != size {
		t.Errorf("got %d bytes, %v; want %d", n, err, size)
	}
	closing.Wait()
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
