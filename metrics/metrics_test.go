package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
)

func TestMetricsPassTheLinter(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	touch(m)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "muxproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestScrapeIsReadByAPrometheusParser(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	touch(m)
	families := scrape(t, reg)

	want := []struct {
		name   string
		labels map[string]string
		value  float64
	}{
		{"muxproxy_requests_total", map[string]string{"route": "/v1/chat/completions", "code": "200", "outcome": "ok"}, 1},
		{"muxproxy_requests_total", map[string]string{"route": "/v1/messages", "code": "200", "outcome": "ok"}, 0},
		{"muxproxy_turns_total", map[string]string{"dialect": "chat"}, 1},
		{"muxproxy_failed_calls_total", map[string]string{"kind": "timeout"}, 1},
		{"muxproxy_failed_calls_total", map[string]string{"kind": "commit_failed"}, 0},
		{"muxproxy_refusals_total", map[string]string{"reason": "draining"}, 1},
		{"muxproxy_tokens_total", map[string]string{"upstream": "default", "type": "input"}, 100},
		{"muxproxy_tokens_total", map[string]string{"upstream": "default", "type": "reasoning"}, 0},
		{"muxproxy_upstream_requests_total", map[string]string{"upstream": "default", "code": "200"}, 1},
		{"muxproxy_upstream_connections_opened_total", map[string]string{"upstream": "default"}, 1},
		{"muxproxy_upstream_replicas", map[string]string{"upstream": "default", "state": "up"}, 2},
		{"muxproxy_upstream_replicas", map[string]string{"upstream": "default", "state": "down"}, 1},
		{"muxproxy_upstream_inflight", map[string]string{"upstream": "default"}, 3},
		{"muxproxy_sessions", map[string]string{"state": "active"}, 4},
		{"muxproxy_sessions", map[string]string{"state": "stopped"}, 5},
		{"muxproxy_sessions", map[string]string{"state": "ended"}, 6},
		{"muxproxy_sessions_registered_total", nil, 20},
		{"muxproxy_sessions_ended_total", map[string]string{"reason": "deleted"}, 7},
		{"muxproxy_sessions_ended_total", map[string]string{"reason": "other"}, 3},
		{"muxproxy_inflight_requests", nil, 8},
		{"muxproxy_trace_bytes", nil, 1 << 20},
		{"muxproxy_traces_evicted_total", nil, 9},
		{"muxproxy_journal_bytes", nil, 1 << 21},
		{"muxproxy_journal_errors_total", nil, 2},
		{"muxproxy_instance_limit", map[string]string{"resource": "sessions"}, 1000},
		{"muxproxy_pool_servers", map[string]string{"state": "ready"}, 3},
		{"muxproxy_pool_servers", map[string]string{"state": "lost"}, 0},
		{"muxproxy_pool_servers", map[string]string{"state": "other"}, 1},
		{"muxproxy_pool_slots", map[string]string{"state": "used"}, 70},
		{"muxproxy_pool_slots", map[string]string{"state": "free"}, 26},
		{"muxproxy_pool_slots", map[string]string{"state": "coming"}, 32},
		{"muxproxy_pool_waiting", nil, 5},
		{"muxproxy_tunnel_opens_total", map[string]string{"driver": "frp", "outcome": "ok"}, 1},
		{"muxproxy_tunnel_opens_total", map[string]string{"driver": "frp", "outcome": "rate_limited"}, 0},
		{"muxproxy_tunnel_losses_total", map[string]string{"driver": "frp"}, 1},
		{"muxproxy_tunnel_probe_failures_total", map[string]string{"driver": "frp"}, 1},
	}
	for _, w := range want {
		if got, ok := value(families[w.name], w.labels); !ok || got != w.value {
			t.Errorf("%s%v = %v (found %v), want %v", w.name, w.labels, got, ok, w.value)
		}
	}
	for _, name := range []string{
		"muxproxy_request_duration_seconds", "muxproxy_overhead_seconds", "muxproxy_time_to_first_event_seconds",
		"muxproxy_stream_gap_seconds", "muxproxy_admission_wait_seconds", "muxproxy_register_duration_seconds",
		"muxproxy_tunnel_open_duration_seconds", "muxproxy_tunnel_pacing_seconds", "muxproxy_journal_commit_duration_seconds",
	} {
		if n := samples(families[name]); n != 1 {
			t.Errorf("%s has %d samples, want 1", name, n)
		}
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestAnUncappedInstanceHasNoLimitSeries(t *testing.T) {
	reg, _ := newMetrics(t, metrics.Sources{})
	if f := scrape(t, reg)["muxproxy_instance_limit"]; f != nil {
		t.Errorf("got %v, want no series", f)
	}
}

func TestTwoInstancesCountApart(t *testing.T) {
	regA, a := newMetrics(t, metrics.Sources{})
	regB, _ := newMetrics(t, metrics.Sources{})
	a.Turn("chat")
	labels := map[string]string{"dialect": "chat"}
	gotA, _ := value(scrape(t, regA)["muxproxy_turns_total"], labels)
	gotB, _ := value(scrape(t, regB)["muxproxy_turns_total"], labels)
	if gotA != 1 || gotB != 0 {
		t.Errorf("got %v and %v, want 1 and 0", gotA, gotB)
	}
}

func TestASecondInstanceOnOneRegistryIsAnError(t *testing.T) {
	reg, _ := newMetrics(t, metrics.Sources{})
	if _, err := metrics.New(reg, metrics.Sources{}); err == nil {
		t.Error("want an error")
	}
}

func TestTokenCountsBelowOneAreIgnored(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	m.Upstream("default").Tokens(metrics.TokensInput, 5)
	m.Upstream("default").Tokens(metrics.TokensInput, -3)
	m.Upstream("default").Tokens(metrics.TokensInput, 0)
	if got, _ := value(scrape(t, reg)["muxproxy_tokens_total"], map[string]string{"type": "input"}); got != 5 {
		t.Errorf("got %v, want 5", got)
	}
}

func TestUnmeasuredOverheadIsNotObserved(t *testing.T) {
	reg, m := newMetrics(t, metrics.Sources{})
	m.Request(metrics.RequestRecord{Route: metrics.RouteChat, Code: 401, Outcome: metrics.OutcomeRefused})
	if n := samples(scrape(t, reg)["muxproxy_overhead_seconds"]); n != 0 {
		t.Errorf("got %d samples, want none", n)
	}
}

func TestScrapesAndCallsRunInParallel(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 200 {
				touch(m)
				m.ConnectionOpened("gone" + strconv.Itoa(i))
				m.UpstreamDone("gone"+strconv.Itoa(i), "500")
			}
		})
		wg.Go(func() {
			for range 20 {
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, _ := value(scrape(t, reg)["muxproxy_turns_total"], map[string]string{"dialect": "chat"}); got != 800 {
		t.Errorf("got %v turns, want 800", got)
	}
}

func newMetrics(tb testing.TB, sources metrics.Sources) (*prometheus.Registry, *metrics.Metrics) {
	tb.Helper()
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, sources)
	if err != nil {
		tb.Fatal(err)
	}
	return reg, m
}

// fullSources gives every state a value of its own.
func fullSources() metrics.Sources {
	return metrics.Sources{
		Version: "1.2.3", Revision: "abc", Driver: "frp",
		Limits: metrics.Limits{Sessions: 1000, Inflight: 500, TraceBytes: 1 << 30},
		Registry: func() registry.Stats {
			return registry.Stats{
				Sessions:   map[registry.State]int{registry.StateActive: 4, registry.StateStopped: 5, registry.StateEnded: 6},
				Registered: 20, Inflight: 8, TraceBytes: 1 << 20, EvictedTraces: 9,
				Ended: map[string]int64{"deleted": 7, "strange": 1, "stranger": 2},
			}
		},
		Journal: func() metrics.JournalState { return metrics.JournalState{Bytes: 1 << 21, Errors: 2} },
		Pool: func() metrics.PoolState {
			return metrics.PoolState{Servers: map[string]int{"ready": 3, "strange": 1}, Used: 70, Free: 26, Coming: 32, Waiting: 5}
		},
		Upstreams: func() []metrics.UpstreamState {
			return []metrics.UpstreamState{{Name: "default", Inflight: 3, Up: 2, Down: 1}}
		},
	}
}

// touch uses every instrument once.
func touch(m *metrics.Metrics) {
	m.Request(metrics.RequestRecord{
		Route: metrics.RouteChat, Code: http.StatusOK, Outcome: metrics.OutcomeOK,
		Duration: time.Second, Overhead: time.Millisecond,
	})
	m.AdmissionWait.Observe(0.1)
	m.RegisterDuration.Observe(0.1)
	m.JournalCommitDuration.Observe(0.1)
	m.Turn("chat")
	m.FailedCall(registry.FailureTimeout)
	m.Refusal(metrics.ReasonDraining)
	m.Upstream("default").Tokens(metrics.TokensInput, 100)
	m.UpstreamDone("default", "200")
	m.ConnectionOpened("default")
	u := m.Upstream("default")
	u.TimeToFirstEvent.Observe(0.2)
	u.StreamGap.Observe(0.02)
	m.Tunnels.Attempted(metrics.TunnelOK, time.Second)
	m.Tunnels.Paced(time.Second)
	m.Tunnels.Lost()
	m.Tunnels.ProbeFailed()
}

// scrape reads the handler as Prometheus does.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	rec := httptest.NewRecorder()
	metrics.Handler(g).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value finds the first series that has the labels.
func value(f *dto.MetricFamily, labels map[string]string) (float64, bool) {
	for _, s := range f.GetMetric() {
		matched := 0
		for _, l := range s.GetLabel() {
			if v, ok := labels[l.GetName()]; ok && v == l.GetValue() {
				matched++
			}
		}
		if matched == len(labels) {
			return s.GetCounter().GetValue() + s.GetGauge().GetValue(), true
		}
	}
	return 0, false
}

func samples(f *dto.MetricFamily) (n uint64) {
	for _, s := range f.GetMetric() {
		n += s.GetHistogram().GetSampleCount()
	}
	return n
}
