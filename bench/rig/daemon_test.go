package rig_test

import (
	"context"
	"net/http"
	"os"
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
	if _, err := os.Stat(d.Dir); !os.IsNotExist(err) {
		t.Errorf("its folder: got %v; want it gone", err)
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
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := rig.StartDaemon(ctx, rig.Program{Args: []string{"sleep", "1000"}, Dir: dir, StopFor: time.Second})
	if err == nil {
		t.Fatal("it is ready")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder: got %v; want it gone", err)
	}
}
