package nonblock_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/nonblock"
)

// request counts how often it was told that it is written.
type request struct{ written chan struct{} }

func newRequest() request { return request{make(chan struct{}, 2)} }

func (r request) Written() { r.written <- struct{}{} }

// dialled gives both ends of a connection as a client has it.
func dialled(tb testing.TB) (peer *net.TCPConn, conn net.Conn) {
	tb.Helper()
	peer, conn = connect(tb, plain)
	return peer, nonblock.Conn(conn)
}

func TestARequestIsWrittenBeforeItsAnswerIsThere(t *testing.T) {
	peer, conn := dialled(t)
	for range 3 {
		r := newRequest()
		answered := make(chan error, 1)
		go func() {
			<-r.written
			_, err := io.CopyN(peer, peer, int64(len("hello")))
			answered <- err
		}()
		if n, err := nonblock.Ask(conn, []byte("hello"), r); n != len("hello") || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
		b := make([]byte, 100)
		if n, err := conn.Read(b); string(b[:n]) != "hello" || err != nil {
			t.Errorf("got %q, %v", b[:n], err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if len(r.written) > 0 {
			t.Error("it was told twice")
		}
	}
}

func TestNothingIsWrittenToAStaleConnection(t *testing.T) {
	for name, spoil := range map[string]func(*net.TCPConn){
		"closed":              func(peer *net.TCPConn) { peer.Close() },
		"closed for writing":  func(peer *net.TCPConn) { _ = peer.CloseWrite() },
		"reset":               func(peer *net.TCPConn) { reset(peer, nil) },
		"with something said": func(peer *net.TCPConn) { _, _ = io.WriteString(peer, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			peer, conn := dialled(t)
			spoil(peer)
			for nonblock.Quiet(conn) { // until it is here
			}
			r := newRequest()
			if n, err := nonblock.Ask(conn, []byte("hello"), r); n != 0 || !errors.Is(err, nonblock.ErrStale) {
				t.Errorf("got %d, %v; want 0, %v", n, err, nonblock.ErrStale)
			}
			if len(r.written) > 0 {
				t.Error("it is said to be written")
			}
			conn.Close()
			if b, _ := io.ReadAll(peer); len(b) > 0 {
				t.Errorf("%q was written", b)
			}
		})
	}
}

func TestARequestTooLongForTheKernelIsWrittenWhole(t *testing.T) {
	peer, conn := dialled(t)
	sent := bytes.Repeat([]byte("0123456789abcdef!"), 1<<19)
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(sent))
		_, _ = io.ReadFull(peer, b)
		got <- b
	}()
	r := newRequest()
	if n, err := nonblock.Ask(conn, sent, r); n != len(sent) || err != nil {
		t.Fatalf("got %d, %v; want %d", n, err, len(sent))
	}
	if len(r.written) != 1 {
		t.Errorf("it was told %d times", len(r.written))
	}
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes came")
	}
}

func TestAFailureOfWaitingIsThatOfTheReadAfterIt(t *testing.T) {
	for name, f := range map[string]struct {
		fail func(peer *net.TCPConn, conn net.Conn)
		is   error
	}{
		"closed":   {func(_ *net.TCPConn, conn net.Conn) { conn.Close() }, net.ErrClosed},
		"deadline": {func(_ *net.TCPConn, conn net.Conn) { _ = conn.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"left":     {func(peer *net.TCPConn, _ net.Conn) { _ = peer.CloseWrite() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			peer, conn := dialled(t)
			r := newRequest()
			go func() {
				<-r.written
				f.fail(peer, conn)
			}()
			if n, err := nonblock.Ask(conn, []byte("hello"), r); n != len("hello") || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
			if err := readSome(conn); !errors.Is(err, f.is) {
				t.Errorf("got %v; want %v", err, f.is)
			}
		})
	}
}

func TestNoAnswerIsMissed(t *testing.T) {
	peer, conn := dialled(t)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.Copy(peer, peer) }()
	b, r := make([]byte, 5), request{make(chan struct{}, 20_000)}
	for range cap(r.written) {
		if _, err := nonblock.Ask(conn, []byte("hello"), r); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
	}
}
