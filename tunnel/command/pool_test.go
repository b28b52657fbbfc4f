package command_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

// clients are the processes of the ssh program that use this key.
func clients(t *testing.T, key string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // the dead have no arguments
		if args := strings.Split(string(text), "\x00"); args[0] == "ssh" && strings.Contains(string(text), key) {
			pids = append(pids, group(t, "/"+filepath.Base(filepath.Dir(path))))
		}
	}
	return pids
}

// Sessions of which the trainer wants to keep the endpoint, whatever its URL,
// live through the end of one program of eight, and of all.
func TestProgramsThatEndAreReplacedUnder64Sessions(t *testing.T) {
	o, sshd := ssh(t)
	var p *tunnel.Pool
	p, err := tunnel.NewPool(tunnel.PoolOptions{
		Driver: driver(t, o), Multiplex: 8, Min: -1, ProbeInterval: time.Second, EndpointGrace: 2 * time.Second,
		Listen: func(ctx context.Context, id string) (*tunnel.Server, error) {
			return tunnel.Listen(ctx, tunnel.ServerOptions{ID: id, Addr: "127.0.0.1:0", Handler: func(nonce string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Muxproxy-Server", nonce)
					w.WriteHeader(http.StatusNoContent)
				})
			}})
		},
		Lost: func(_ string, sessions []string) {
			var all sync.WaitGroup
			for _, s := range sessions {
				all.Go(func() { _, _ = p.Move(context.Background(), s) }) // told again if it fails
			}
			all.Wait()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(context.Background()) })
	defer running.Wait()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		eventually(t, "end of all programs", func() bool { return len(clients(t, sshd.UserKey)) == 0 })
	}()

	var placing sync.WaitGroup
	for i := range 64 {
		placing.Go(func() {
			if _, err := p.Place(t.Context(), fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	placing.Wait()
	generations := func() (sum int) {
		for i := range 64 {
			at, ok := p.Current(fmt.Sprint(i))
			if !ok {
				t.Fatalf("session %d has no place", i)
			}
			sum += at.Generation
		}
		return sum
	}
	settled := func(generation int) func() bool {
		return func() bool {
			for _, s := range p.Servers() {
				if s.Sessions > 8 {
					t.Errorf("%s: got %d sessions; want at most 8", s.ID, s.Sessions)
				}
			}
			return generations() == generation && p.Stats().Servers[tunnel.ServerReady] == 8 && len(p.Servers()) == 8
		}
	}
	eventually(t, "eight servers", settled(64))

	kill(t, clients(t, sshd.UserKey)[0])
	eventually(t, "move of the eight sessions whose program was killed", settled(64+8))

	sshd.Kill(t)
	sshd.Restart(t)
	eventually(t, "move of all sessions", settled(64+8+64))
}
