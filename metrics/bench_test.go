package metrics_test

import (
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
)

func TestCountingDoesNotAllocate(t *testing.T) {
	_, m := newMetrics(t, fullSources())
	u := m.Upstream("default")
	touch(m)
	if n := testing.AllocsPerRun(100, func() {
		touch(m)
		u.StreamGap.Observe(0.01)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkStreamGap(b *testing.B) {
	_, m := newMetrics(b, fullSources())
	u := m.Upstream("default")
	b.ReportAllocs()
	for b.Loop() {
		u.StreamGap.Observe(0.01)
	}
}

func BenchmarkRequest(b *testing.B) {
	_, m := newMetrics(b, fullSources())
	r := metrics.RequestRecord{
		Route: metrics.RouteChat, Code: 200, Outcome: metrics.OutcomeOK, Stream: true,
		Duration: time.Second, Overhead: 50 * time.Microsecond,
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Request(r)
	}
}

// BenchmarkCall counts all that one recorded call counts beside its events.
func BenchmarkCall(b *testing.B) {
	_, m := newMetrics(b, fullSources())
	b.ReportAllocs()
	for b.Loop() {
		touch(m)
	}
}
