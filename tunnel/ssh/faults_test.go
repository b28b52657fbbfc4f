package ssh_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
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
