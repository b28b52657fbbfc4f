package ssh_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

const (
	linkRate   = 5 << 20 // bytes a second
	linkBuffer = 128 << 10
)

// slow is the address of a link to the target that carries linkRate in the
// direction there.
func slow(t *testing.T, target string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			_ = near.(*net.TCPConn).SetReadBuffer(linkBuffer / 2) // Linux doubles it
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			_ = far.(*net.TCPConn).SetWriteBuffer(4 << 10)
			all.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
			all.Go(func() { trickle(far, near); _ = far.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func trickle(to io.Writer, from io.Reader) {
	chunk := make([]byte, 8<<10)
	for next := time.Now(); ; {
		n, err := from.Read(chunk)
		if err != nil {
			return
		}
		if now := time.Now(); next.Before(now) {
			next = now
		}
		next = next.Add(time.Duration(n) * time.Second / linkRate)
		time.Sleep(time.Until(next))
		if _, err := to.Write(chunk[:n]); err != nil {
			return
		}
	}
}

// Events of one rollout pass the large answer to another, on a link that the
// large answer fills: they wait for what is in the link, and not for the
// megabytes that a socket would queue.
func TestEventsPassALargeAnswerOnASlowLink(t *testing.T) {
	sshd := sshdtest.Start(t)
	o := options(sshd)
	o.Addr = slow(t, sshd.Addr)
	known := strings.ReplaceAll(read(t, sshd.KnownHosts), sshd.Port(), o.Addr[strings.LastIndexByte(o.Addr, ':')+1:])
	write(t, sshd.KnownHosts, known)
	up := open(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			if r.URL.Path == "/bulk" {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
				continue
			}
			_, _ = fmt.Fprintf(w, "%d\n", time.Now().UnixNano())
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	alone := delay(t, up.URL(), 50)
	ctx, cancel := context.WithCancel(t.Context())
	var bulk sync.WaitGroup
	bulk.Go(func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, up.URL()+"/bulk", nil)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := client(t).Do(request)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		_, _ = io.Copy(io.Discard, answer.Body)
	})
	delay(t, up.URL(), 25) // until the link is full
	beside := delay(t, up.URL(), 50)
	cancel()
	bulk.Wait()
	t.Logf("median delay of an event: %s alone, %s beside a large answer", alone, beside)
	if beside > 600*time.Millisecond {
		t.Errorf("got a median of %s beside a large answer; want what the link's buffer holds, not megabytes", beside)
	}
}

// delay is the median of how long n events of a stream were on their way.
func delay(t *testing.T, url string, n int) time.Duration {
	t.Helper()
	answer, err := client(t).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var delays []time.Duration
	for lines := bufio.NewScanner(answer.Body); len(delays) < n && lines.Scan(); {
		sent, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		delays = append(delays, time.Since(time.Unix(0, sent)))
	}
	if len(delays) < n {
		t.Fatalf("got %d events; want %d", len(delays), n)
	}
	slices.Sort(delays)
	return delays[n/2]
}
