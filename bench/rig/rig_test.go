package rig_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

func TestFlagsThatAllBenchmarksHave(t *testing.T) {
	f := rig.NewFlags("speed")
	rounds := f.Int("rounds", 1, "")
	if err := f.Parse([]string{"-muxproxy", "../muxproxy", "-rounds", "3"}); err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Abs("../muxproxy")
	if err != nil || f.Muxproxy != want || f.Out != "results/speed.json" || *rounds != 3 {
		t.Errorf("got %q, %q, %d", f.Muxproxy, f.Out, *rounds)
	}
}

func TestResultsAreSavedAsLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	if err := rig.Save(file, map[string]int{"runs": 1}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "{\n  \"runs\": 1\n}\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestMachineIsDescribed(t *testing.T) {
	if m := rig.ThisMachine(); m.CPU == "" || m.Cores < 1 || !strings.HasPrefix(m.Go, "go") || len(m.Date) != len("2006-01-02") {
		t.Errorf("got %+v", m)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	if got := rig.Median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("of three: got %g; want 5", got)
	}
	if got := rig.Median([]time.Duration{4, 1, 2, 9}); got != 3 {
		t.Errorf("of four: got %d; want 3", got)
	}
	values := []int{5, 4, 3, 2, 1}
	for share, want := range map[float64]int{0: 1, 0.5: 3, 0.99: 4, 1: 5} {
		if got := rig.Quantile(values, share); got != want {
			t.Errorf("%g: got %d; want %d", share, got, want)
		}
	}
	if got := rig.Quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("of none: got %d", got)
	}
}

func TestCallsSucceedOrSayWhatWasAnswered(t *testing.T) {
	server, err := rig.Serve(t.Context(), &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "not so", http.StatusTeapot)
			return
		}
		_, _ = fmt.Fprint(w, `{"said":"yes"}`)
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var answer struct{ Said string }
	if err := rig.Call(t.Context(), client, http.MethodPost, "http://"+server.Addr+"/", "{}", &answer); err != nil || answer.Said != "yes" {
		t.Errorf("got %q, %v", answer.Said, err)
	}
	err = rig.Call(t.Context(), client, http.MethodPost, "http://"+server.Addr+"/refused", "{}", nil)
	if err == nil || !strings.Contains(err.Error(), "POST /refused: status 418: not so") {
		t.Errorf("got %v", err)
	}
}

func TestMetricsAreRead(t *testing.T) {
	server, err := rig.Serve(t.Context(), &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# TYPE calls counter\ncalls 3\n")
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	families, err := rig.Metrics(t.Context(), "http://"+server.Addr)
	if err != nil || families["calls"].GetMetric()[0].GetCounter().GetValue() != 3 {
		t.Errorf("got %v, %v", families, err)
	}
}
