package nonblock_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/nonblock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func plain(l net.Listener) net.Listener { return l }

// connect gives both ends of a connection: one that dialled and one that was
// accepted by what listen makes.
func connect(tb testing.TB, listen func(net.Listener) net.Listener) (peer *net.TCPConn, conn net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l = listen(l)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	if conn, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.Close()
		conn.Close()
	})
	return c.(*net.TCPConn), conn
}

func TestAllBytesGetThrough(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef!"), 1<<20) // far more than the kernel takes at once
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		t.Run(fmt.Sprintf("%dKB", size>>10), func(t *testing.T) {
			peer, conn := connect(t, nonblock.Listen)
			var running sync.WaitGroup
			running.Go(func() { _, _ = io.Copy(peer, peer) })
			running.Go(func() {
				for piece := range slices.Chunk(sent, size) {
					if n, err := conn.Write(piece); n != len(piece) || err != nil {
						t.Errorf("wrote %d, %v; want %d", n, err, len(piece))
					}
				}
			})
			got, b := make([]byte, 0, len(sent)), make([]byte, size)
			for len(got) < len(sent) {
				n, err := conn.Read(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b[:n]...)
			}
			if !bytes.Equal(got, sent) {
				t.Error("other bytes came back")
			}
			conn.Close()
			running.Wait()
		})
	}
}

func TestAReadGivesWhatHasCome(t *testing.T) {
	peer, conn := connect(t, nonblock.Listen)
	b := make([]byte, 100)
	for _, sent := range []string{"first", "second"} {
		if _, err := io.WriteString(peer, sent); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(b); err != nil || string(b[:n]) != sent {
			t.Errorf("got %q, %v; want %q", b[:n], err, sent)
		}
	}
	_ = peer.CloseWrite()
	if n, err := conn.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d, %v; want 0, EOF", n, err)
	}
}

// failures are ways in which a connection fails whoever uses it.
var failures = map[string]struct {
	fail func(peer *net.TCPConn, conn net.Conn)
	use  func(conn net.Conn) error
	is   error
}{
	"read after its deadline": {
		func(_ *net.TCPConn, conn net.Conn) { _ = conn.SetReadDeadline(time.Now().Add(-time.Second)) },
		readSome, os.ErrDeadlineExceeded,
	},
	"read when its deadline passes": {
		func(_ *net.TCPConn, conn net.Conn) { _ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) },
		readSome, os.ErrDeadlineExceeded,
	},
	"write when its deadline passes": {
		func(_ *net.TCPConn, conn net.Conn) { _ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) },
		writeOn, os.ErrDeadlineExceeded,
	},
	"read of a closed one":  {func(_ *net.TCPConn, conn net.Conn) { conn.Close() }, readSome, net.ErrClosed},
	"write to a closed one": {func(_ *net.TCPConn, conn net.Conn) { conn.Close() }, writeOn, net.ErrClosed},
	"read after a reset":    {reset, readSome, syscall.ECONNRESET},
	"write after a reset": {func(peer *net.TCPConn, conn net.Conn) {
		reset(peer, conn)
		_ = readSome(conn)
	}, writeOn, syscall.EPIPE},
}

func reset(peer *net.TCPConn, _ net.Conn) {
	_ = peer.SetLinger(0)
	peer.Close()
}

func readSome(conn net.Conn) error {
	_, err := conn.Read(make([]byte, 100))
	return err
}

// writeOn writes until that fails.
func writeOn(conn net.Conn) error {
	for {
		if _, err := conn.Write(make([]byte, 32<<10)); err != nil {
			return err
		}
	}
}

func TestFailuresAreThoseOfPackageNet(t *testing.T) {
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			peer, conn := connect(t, plain)
			f.fail(peer, conn)
			want, _ := errors.AsType[*net.OpError](f.use(conn))

			peer, conn = connect(t, nonblock.Listen)
			f.fail(peer, conn)
			err := f.use(conn)
			got, ok := errors.AsType[*net.OpError](err)
			if !ok || !errors.Is(err, f.is) {
				t.Fatalf("got %v; want %v", err, f.is)
			}
			if got.Op != want.Op || got.Net != want.Net || got.Err.Error() != want.Err.Error() || got.Timeout() != want.Timeout() {
				t.Errorf("got %v; want %v", got, want)
			}
			if got.Source != conn.LocalAddr() || got.Addr != conn.RemoteAddr() {
				t.Errorf("got it between %v and %v", got.Source, got.Addr)
			}
		})
	}
}

func TestCloseEndsAWaitingRead(t *testing.T) {
	_, conn := connect(t, nonblock.Listen)
	time.AfterFunc(10*time.Millisecond, func() { conn.Close() })
	if err := readSome(conn); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v; want %v", err, net.ErrClosed)
	}
}

func TestConcurrentWritesAreNotMixed(t *testing.T) {
	peer, conn := connect(t, nonblock.Listen)
	const writers, times, size = 4, 50, 60 << 10
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for range times {
				if _, err := conn.Write(bytes.Repeat([]byte{'a' + byte(i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	b := make([]byte, size)
	for range writers * times {
		if _, err := io.ReadFull(peer, b); err != nil {
			t.Fatal(err)
		}
		if strings.Trim(string(b), string(b[:1])) != "" {
			t.Fatal("a write was divided by another")
		}
	}
	writing.Wait()
}

func TestWhatIsNoTCPStaysAsItIs(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if nonblock.Conn(a) != a {
		t.Error("it was wrapped")
	}
}

func TestReadsAndWritesAllocateNothing(t *testing.T) {
	peer, conn := connect(t, nonblock.Listen)
	b := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = conn.Write(b)
		_, _ = io.ReadFull(peer, b)
		_, _ = peer.Write(b)
		_, _ = io.ReadFull(conn, b)
	}); n > 0 {
		t.Errorf("got %v allocations", n)
	}
}
