package metrics

import "github.com/prometheus/client_golang/prometheus"

// Type is the Prometheus type of a metric.
type Type string

// The types of the catalogue.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes one metric. The instruments are built from it and docs/metrics.md is checked against it.
type Metric struct {
	Name    string // with its prefix, as it is scraped
	Type    Type
	Labels  []string
	Help    string
	Buckets []float64 // upper bounds in seconds, histograms only
}

// Catalogue lists every metric that muxproxy itself defines, in the order of docs/metrics.md. Go's own and the
// process's metrics come on top.
func Catalogue() []Metric {
	return []Metric{
		{
			Name: "muxproxy_requests_total", Type: Counter, Labels: []string{"route", "code", "outcome"},
			Help: "Data-plane requests answered, by canonical route, status code and outcome.",
		},
		{
			Name: "muxproxy_request_duration_seconds", Type: Histogram, Labels: []string{"route", "stream"},
			Help:    "Time from a request's headers to the last byte of its answer.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800},
		},
		{
			Name: "muxproxy_overhead_seconds", Type: Histogram, Labels: []string{"route"},
			Help: "Time muxproxy itself added to a call: waiting for admission, client and upstream excluded.",
			Buckets: []float64{
				0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
			},
		},
		{
			Name: "muxproxy_time_to_first_event_seconds", Type: Histogram, Labels: []string{"upstream"},
			Help:    "Time from dispatch to the first event of a stream.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900},
		},
		{
			Name: "muxproxy_stream_gap_seconds", Type: Histogram, Labels: []string{"upstream"},
			Help:    "Time between two events of a stream as they arrive from the upstream.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300},
		},
		{
			Name: "muxproxy_inflight_requests", Type: Gauge,
			Help: "Admitted calls that are running now.",
		},
		{
			Name: "muxproxy_admission_wait_seconds", Type: Histogram,
			Help:    "Time a call waited for its session's and the instance's rate and concurrency, refused ones included.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		},
		{
			Name: "muxproxy_turns_total", Type: Counter, Labels: []string{"dialect"},
			Help: "Turns committed.",
		},
		{
			Name: "muxproxy_failed_calls_total", Type: Counter, Labels: []string{"kind"},
			Help: "Admitted calls that made no turn, by the kind recorded in the trace.",
		},
		{
			Name: "muxproxy_tokens_total", Type: Counter, Labels: []string{"upstream", "type"},
			Help: "Tokens of committed turns as the upstream reported them; input includes cached, output includes reasoning.",
		},
		{
			Name: "muxproxy_refusals_total", Type: Counter, Labels: []string{"reason"},
			Help: "Calls and registrations that muxproxy itself refused.",
		},
		{
			Name: "muxproxy_replays_total", Type: Counter, Labels: []string{"kind"},
			Help: "Retries, by what became of them.",
		},
		{
			Name: "muxproxy_sessions", Type: Gauge, Labels: []string{"state"},
			Help: "Sessions kept; active and stopped ones hold a place, ended ones only their trace.",
		},
		{
			Name: "muxproxy_sessions_registered_total", Type: Counter,
			Help: "Sessions registered.",
		},
		{
			Name: "muxproxy_sessions_ended_total", Type: Counter, Labels: []string{"reason"},
			Help: "Sessions ended.",
		},
		{
			Name: "muxproxy_register_duration_seconds", Type: Histogram,
			Help:    "Time to register a session or a batch, waiting for places included.",
			Buckets: []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300},
		},
		{
			Name: "muxproxy_pool_servers", Type: Gauge, Labels: []string{"state"},
			Help: "Servers of the pool; sessions are placed only on ready ones.",
		},
		{
			Name: "muxproxy_pool_slots", Type: Gauge, Labels: []string{"state"},
			Help: "Places for sessions: with one, without one on ready servers, and on servers that are not up yet.",
		},
		{
			Name: "muxproxy_pool_waiting", Type: Gauge,
			Help: "Places that registrations wait for now.",
		},
		{
			Name: "muxproxy_tunnel_opens_total", Type: Counter, Labels: []string{"driver", "outcome"},
			Help: "Attempts to open a tunnel.",
		},
		{
			Name: "muxproxy_tunnel_open_duration_seconds", Type: Histogram,
			Help:    "Time an attempt to open a tunnel took, until its protocol said that it is up or that it failed.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60},
		},
		{
			Name: "muxproxy_tunnel_pacing_seconds", Type: Histogram,
			Help:    "Time an attempt to open a tunnel waited for its turn under the rate.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		},
		{
			Name: "muxproxy_tunnel_losses_total", Type: Counter, Labels: []string{"driver"},
			Help: "Public URLs that were lost for good.",
		},
		{
			Name: "muxproxy_tunnel_probe_failures_total", Type: Counter, Labels: []string{"driver"},
			Help: "Failed probes, through its public URL, of a server that had been ready.",
		},
		{
			Name: "muxproxy_upstream_requests_total", Type: Counter, Labels: []string{"upstream", "code"},
			Help: "Requests sent to an upstream, by its status code or by why there was none.",
		},
		{
			Name: "muxproxy_upstream_inflight", Type: Gauge, Labels: []string{"upstream"},
			Help: "Requests that an upstream's replicas are working on now.",
		},
		{
			Name: "muxproxy_upstream_replicas", Type: Gauge, Labels: []string{"upstream", "state"},
			Help: "Replicas of an upstream.",
		},
		{
			Name: "muxproxy_upstream_paused", Type: Gauge, Labels: []string{"upstream"},
			Help: "1 while an upstream is paused, else 0.",
		},
		{
			Name: "muxproxy_upstream_connections_opened_total", Type: Counter, Labels: []string{"upstream"},
			Help: "Connections opened to an upstream.",
		},
		{
			Name: "muxproxy_journal_commit_duration_seconds", Type: Histogram,
			Help:    "Time that writing a batch of turns and changes to the journal took.",
			Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5},
		},
		{
			Name: "muxproxy_journal_errors_total", Type: Counter,
			Help: "Batches that could not be written to the journal.",
		},
		{
			Name: "muxproxy_journal_bytes", Type: Gauge,
			Help: "Disk space that the journal takes; 0 without one.",
		},
		{
			Name: "muxproxy_trace_bytes", Type: Gauge,
			Help: "Memory held by traces.",
		},
		{
			Name: "muxproxy_traces_evicted_total", Type: Counter,
			Help: "Ended traces dropped before their retention was over, to free memory.",
		},
		{
			Name: "muxproxy_instance_limit", Type: Gauge, Labels: []string{"resource"},
			Help: "Configured cap of this instance; absent when there is none.",
		},
		{
			Name: "muxproxy_build_info", Type: Gauge, Labels: []string{"version", "revision", "goversion"},
			Help: "Always 1; the labels say what was built.",
		},
	}
}

// catalogue builds instruments by name. A name that is not in the catalogue, or not of the asked type, gives an
// instrument without a name, which the registry refuses.
type catalogue map[string]Metric

func newCatalogue() catalogue {
	c := make(catalogue)
	for _, m := range Catalogue() {
		c[m.Name] = m
	}
	return c
}

func (c catalogue) find(name string, t Type) Metric {
	if m := c["muxproxy_"+name]; m.Type == t {
		return m
	}
	return Metric{}
}

func (c catalogue) counterVec(name string) *prometheus.CounterVec {
	m := c.find(name, Counter)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

func (c catalogue) histogramVec(name string) *prometheus.HistogramVec {
	m := c.find(name, Histogram)
	return prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
}

func (c catalogue) histogram(name string) prometheus.Histogram {
	m := c.find(name, Histogram)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets})
}

func (c catalogue) desc(name string, t Type) *prometheus.Desc {
	m := c.find(name, t)
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}
