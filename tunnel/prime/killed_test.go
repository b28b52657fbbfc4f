package prime_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

// daemon opens three tunnels, says so, waits for a line, and opens a fourth.
func daemon(base, dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			panic(err)
		}
	}
	record, err := ledger.Open(dir)
	fail(err)
	d, err := prime.New(prime.Options{APIKey: "key", BaseURL: base, Ledger: record})
	fail(err)
	for range 3 {
		_, err := d.Open(context.Background(), tunnel.Local{Server: "srv-1", Addr: "127.0.0.1:8080"})
		fail(err)
	}
	fmt.Println("open")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	fail(err)
	_, err = d.Open(context.Background(), tunnel.Local{Server: "srv-4", Addr: "127.0.0.1:8080"})
	fail(err)
}

func TestTheNextProcessDeletesWhatAKilledOneLeft(t *testing.T) {
	stand := provider(t, controlplane.Options{})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	dir := t.TempDir()
	start := func(key string) *prime.Driver {
		record, err := ledger.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = record.Close() })
		d, err := prime.New(prime.Options{APIKey: key, BaseURL: stand.BaseURL, Ledger: record, Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	alive := start("key")
	kept, err := alive.Open(t.Context(), serve(t, "kept"))
	if err != nil {
		t.Fatal(err)
	}

	process := exec.CommandContext(t.Context(), os.Args[0], "daemon", stand.BaseURL, dir)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "open" {
		t.Fatalf("process said %q, %v", line, err)
	}
	// The fourth is made, and the process dies before it hears of it.
	stand.Fail(controlplane.Create, controlplane.Fault{Hang: true, Late: true})
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "five tunnels", func() bool { return stand.Live() == 5 })
	if err := process.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = process.Wait()
	stand.Mend()

	run := func(d *prime.Driver) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stopOther := run(start("other"))
	next := start("key")
	stopNext := run(next)
	eventually(t, "only the living process's tunnel is left", func() bool { return stand.Live() == 1 && next.Left() == 0 })
	stopNext()
	stopOther()
	if _, got := through(t, stand, kept.URL()); got != "kept" {
		t.Errorf("the living process's tunnel: got %q", got)
	}
	if err := kept.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("ledger still has %v, %v", entries, err)
	}
}

func TestWhatIsFoundLockedAtFirstIsDeletedAfterTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		dead := newBench(t, controlplane.Options{}, dir)
		left, _ := dead.open(t)
		next := newBenchBefore(t, dead.plane, dir)
		stop := next.run(t.Context())
		synctest.Wait()
		if live := dead.plane.Live(); live != 1 {
			t.Errorf("got %d tunnels; want that of a living process left alone", live)
		}
		if err := dead.record.Close(); err != nil { // as it is when the process is killed
			t.Error(err)
		}
		time.Sleep(ledger.LookAgain + 2*time.Second)
		synctest.Wait()
		if live := dead.plane.Live(); live != 0 || next.Left() != 0 {
			t.Errorf("got %d tunnels, %d to be deleted; want none", live, next.Left())
		}
		stop()
		_ = left.Close(t.Context()) // of which nothing is there any more
	})
}
