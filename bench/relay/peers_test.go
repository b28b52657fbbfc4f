package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	relay "github.com/muxproxy/muxproxy/bench/relay"
)

func TestPeersAreComparedInsideARound(t *testing.T) {
	const work = "json-2k"
	// The machine is twice as slow in the second round, three times in the third.
	var samples []relay.Sample
	for round := range 3 {
		for target, factor := range map[string]int{"direct": 1, "muxproxy": 2, "nginx": 3} {
			slow := factor * (round + 1)
			samples = append(samples, relay.Sample{
				Target: target, Work: work, CPU: float64(100 * slow), P50: time.Duration(slow) * time.Millisecond,
			}.At(round))
		}
	}
	r := &relay.PeerResults{Rounds: 3, Peers: []relay.PeerInfo{{Name: "muxproxy"}, {Name: "nginx", Version: "1.2.3", Does: "relays"}}}
	r.Fill(samples, nil)
	if len(r.Runs) != 2 {
		t.Fatalf("%d runs; want that of each peer and none of the direct calls", len(r.Runs))
	}
	if got := r.Runs[1]; got.CPU != 600 || got.Ratio != 1.5 || got.AddedP50 != 4000 {
		t.Errorf("nginx: got %+v; want 600 µs, 1.5 times muxproxy, 4000 µs added", got)
	}
	table, err := r.Table()
	if err != nil {
		t.Fatal(err)
	}
	if want := "| nginx | 1.2.3 | relays | 600 (1.50) |  |  |  |\n"; !strings.Contains(table, want) {
		t.Errorf("got %s\nwant a line %s", table, want)
	}
}

func TestTheRecordedComparisonIsInTheDocumentation(t *testing.T) {
	recorded, err := os.ReadFile("../results/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	var r relay.PeerResults
	if err := json.Unmarshal(recorded, &r); err != nil {
		t.Fatal(err)
	}
	table, err := r.Table()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/benchmarks.md has not what results/peers.json holds:\n%s", table)
	}
}

func TestTimeOfChildrenCounts(t *testing.T) {
	// The shell waits while its child is busy.
	command := exec.CommandContext(t.Context(), "sh", "-c", "(while :; do :; done) & wait")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(-command.Process.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = command.Wait() // killed
	}()
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		took, err := relay.TreeTime(command.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if took > 100*time.Millisecond {
			return
		}
	}
	t.Error("the time of a busy child is not in that of its parent")
}
