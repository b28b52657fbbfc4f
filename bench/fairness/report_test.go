package main

import (
	"strings"
	"testing"
	"time"
)

func TestRatiosAreTakenInsideARound(t *testing.T) {
	// The machine is twice as slow in the second round, three times in the third.
	var samples []labelled
	for round := range 3 {
		for bulk, factor := range map[string]int{bulkNone: 1, bulkUpload: 2, bulkDownload: 9} {
			p50 := time.Duration(factor*(round+1)*10) * time.Millisecond
			s := &sample{
				events: []time.Duration{p50, p50, p50}, requests: []time.Duration{2 * p50},
				bulk: 10_000_000, window: 2 * time.Second,
			}
			samples = append(samples, labelled{s, "tcp", 32, bulk, round})
		}
	}
	r := (&bench{rounds: 3}).report(samples)
	if len(r.Runs) != 3 {
		t.Fatalf("%d runs", len(r.Runs))
	}
	for _, run := range r.Runs {
		want := map[string]float64{bulkNone: 1, bulkUpload: 2, bulkDownload: 9}[run.Bulk]
		if run.Ratio.Events != want || run.Ratio.Requests != want || run.Events.P50 != want*20 || run.BulkRate != 5 {
			t.Errorf("bulk %s: %+v", run.Bulk, run)
		}
	}
	if err := r.judge(); err == nil || !strings.Contains(err.Error(), "download: 9.00") || strings.Contains(err.Error(), "upload") {
		t.Errorf("judged %v", err)
	}
}
