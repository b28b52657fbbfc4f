package metrics_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/registry"
)

// Seen in litellm#39136, litellm#12159, llm-d-batch-gateway#202 and otari#6: a series for each name a client invents.
func TestSeriesCountIsConstantUnderTenThousandStrangeLabels(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	strange := func(i int) {
		s := "x" + strconv.Itoa(i) + "\xff"
		m.Request(metrics.RequestRecord{Route: metrics.Route(s), Code: i - 5000, Outcome: metrics.Outcome(s), Stream: i%2 == 0, Overhead: 1})
		m.Request(metrics.RequestRecord{Route: metrics.RouteChat, Code: i % 1000, Outcome: metrics.OutcomeOK})
		m.Turn(s)
		m.FailedCall(registry.FailureKind(s))
		m.Refusal(metrics.Reason(s))
		m.Replay(metrics.Replay(s))
		m.Upstream(s).Tokens(metrics.TokenType(s), 1)
		m.Upstream("u"+strconv.Itoa(i)).Tokens(metrics.TokensInput, 1)
		m.UpstreamDone(s, s)
		m.UpstreamDone("default", strconv.Itoa(i))
		m.UpstreamDone("default", s)
		m.ConnectionOpened(s)
		m.Upstream(s).StreamGap.Observe(1)
		m.Tunnels.Attempted(metrics.TunnelOutcome(s), 1)
	}
	for i := range 10_000 {
		strange(i)
	}
	before := series(t, reg)
	for i := range 10_000 {
		strange(10_000 + i)
		strange(i)
	}
	if after := series(t, reg); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	if limit := 1500; before > limit {
		t.Errorf("%d series, want at most %d", before, limit)
	}
	for name, f := range scrape(t, reg) {
		if strings.HasPrefix(name, "muxproxy_") {
			checkLabels(t, f)
		}
	}
}

func TestSeriesOfAnUpstreamComeAndGoWithIt(t *testing.T) {
	var mu sync.Mutex
	configured := []string{"a", "b"}
	sources := metrics.Sources{Upstreams: func() []metrics.UpstreamState {
		mu.Lock()
		defer mu.Unlock()
		var states []metrics.UpstreamState
		for _, name := range configured {
			states = append(states, metrics.UpstreamState{Name: name, Up: 1})
		}
		return states
	}}
	reg, m := newMetrics(t, sources)
	if got := upstreamNames(t, reg); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("before any call: %v", got)
	}

	held := m.Upstream("b")
	m.UpstreamDone("b", "503")
	mu.Lock()
	configured = []string{"a", "c"}
	mu.Unlock()
	if got := upstreamNames(t, reg); !slices.Equal(got, []string{"a", "c"}) {
		t.Fatalf("after b was replaced by c: %v", got)
	}

	held.StreamGap.Observe(1)
	held.Tokens(metrics.TokensInput, 1)
	m.UpstreamDone("b", "200")
	m.ConnectionOpened("b")
	if got := upstreamNames(t, reg); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("a late call on b brought it back: %v", got)
	}

	mu.Lock()
	configured = []string{"b"}
	mu.Unlock()
	if got, _ := value(scrape(t, reg)["muxproxy_upstream_requests_total"], map[string]string{"upstream": "b", "code": "503"}); got != 0 {
		t.Errorf("a new b starts with %v requests of the old one", got)
	}
}

func TestAnUpstreamNameThatIsNotUTF8IsNotExposed(t *testing.T) {
	reg, _ := newMetrics(t, metrics.Sources{Upstreams: func() []metrics.UpstreamState {
		return []metrics.UpstreamState{{Name: "\xff"}, {Name: "a"}}
	}})
	if got := upstreamNames(t, reg); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %v, want [a]", got)
	}
}

// series counts what a scrape exposes of muxproxy's own, a histogram once.
func series(t *testing.T, g prometheus.Gatherer) (n int) {
	t.Helper()
	for name, f := range scrape(t, g) {
		if strings.HasPrefix(name, "muxproxy_") {
			n += len(f.GetMetric())
		}
	}
	return n
}

func upstreamNames(t *testing.T, g prometheus.Gatherer) []string {
	t.Helper()
	var names []string
	for _, f := range scrape(t, g) {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "upstream" {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
