package rig_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

func start(t *testing.T, dir string) *rig.Daemon {
	t.Helper()
	d, err := rig.StartDaemon(t.Context(), rig.Program{Args: []string{os.Args[0], "daemon"}, Dir: dir, StopFor: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDaemonRegistersAndEndsMoreSessionsThanItTakesAtOnce(t *testing.T) {
	d := start(t, "")
	sessions, err := d.Register(t.Context(), 2500, "{}")
	if err != nil || len(sessions) != 2500 || sessions[7].Secret != "of "+sessions[7].ID || sessions[7].Endpoint.URL != "http://here" {
		t.Fatalf("got %d sessions, %v; want 2500 with what they are given", len(sessions), err)
	}
	count := func() (n struct{ Live, Batches int }) {
		if err := d.Call(t.Context(), http.MethodGet, "/sessions", "", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := count(); got.Live != 2500 || got.Batches != 3 {
		t.Errorf("got %+v; want 2500 made in three batches", got)
	}
	if err := d.End(t.Context(), sessions); err != nil || count().Live != 0 {
		t.Errorf("got %v with %d left", err, count().Live)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if !gone(d.Dir) {
		t.Error("its folder is still there")
	}
}

func TestKilledDaemonIsStartedAgainInItsFolder(t *testing.T) {
	first := start(t, t.TempDir())
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	second := start(t, first.Dir)
	if second.Admin == first.Admin || second.Listen != "here:1" {
		t.Errorf("got %s, before it %s; want where the new one is", second.Admin, first.Admin)
	}
	for _, d := range []*rig.Daemon{second, first} {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestDaemonThatDoesNotGetReadyLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		limit time.Duration
		want  string
	}{
		"hangs": {[]string{"sleep", "1000"}, 50 * time.Millisecond, "not ready in time"},
		"ends":  {[]string{"sh", "-c", "exit 3"}, time.Minute, "it has ended: exit status 3"},
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), c.limit)
		defer cancel()
		_, err := rig.StartDaemon(ctx, rig.Program{Args: c.args, Dir: dir, StopFor: time.Second})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", name, err, c.want)
		}
		if ctx.Err() != nil && name == "ends" {
			t.Error("its end was noticed late")
		}
		if !gone(dir) {
			t.Errorf("%s: its folder is still there", name)
		}
	}
}
