package metrics

import (
	"runtime"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/registry"
)

// Sources are the functions that state is read through at each scrape; a nil one reads as nothing. They are called
// from the scraper's goroutine, possibly from several at once, must not block and give away what they return.
type Sources struct {
	Version  string // of the build, "" is "unknown"
	Revision string // of the source, "" is "unknown"

	Driver string // how servers are made reachable, one of [Drivers]

	Limits    Limits
	Registry  func() registry.Stats
	Journal   func() JournalState
	Pool      func() PoolState
	Upstreams func() []UpstreamState
}

// Limits are the configured caps of the instance; 0 is no cap, which is not exposed.
type Limits struct {
	Sessions   int
	Inflight   int
	TraceBytes int64
}

// JournalState is the state of the journal.
type JournalState struct {
	Bytes  int64 // on disk
	Errors int64 // batches that could not be written, since the start
}

// UpstreamState is a configured upstream and what it is doing.
type UpstreamState struct {
	Name               string
	Inflight           int // requests its replicas are working on
	Up, Down, Draining int // replicas, by state
	Paused             bool
}

// stateCollector reads the sources at each scrape. It also collects the instruments labelled with an upstream, for
// only one collector can both drop the series of deleted upstreams and be sure to do so before they are exposed.
type stateCollector struct {
	sources   Sources
	upstreams *upstreams

	inflight, sessions, registered, ended *prometheus.Desc
	traceBytes, evicted                   *prometheus.Desc
	journalBytes, journalErrors           *prometheus.Desc
	poolServers, poolSlots, poolWaiting   *prometheus.Desc
	upstreamInflight, upstreamReplicas    *prometheus.Desc
	upstreamPaused, limit, buildInfo      *prometheus.Desc
}

func newStateCollector(c catalogue, sources Sources, upstreams *upstreams) *stateCollector {
	return &stateCollector{
		sources:          sources,
		upstreams:        upstreams,
		inflight:         c.desc("inflight_requests", Gauge),
		sessions:         c.desc("sessions", Gauge),
		registered:       c.desc("sessions_registered_total", Counter),
		ended:            c.desc("sessions_ended_total", Counter),
		traceBytes:       c.desc("trace_bytes", Gauge),
		evicted:          c.desc("traces_evicted_total", Counter),
		journalBytes:     c.desc("journal_bytes", Gauge),
		journalErrors:    c.desc("journal_errors_total", Counter),
		poolServers:      c.desc("pool_servers", Gauge),
		poolSlots:        c.desc("pool_slots", Gauge),
		poolWaiting:      c.desc("pool_waiting", Gauge),
		upstreamInflight: c.desc("upstream_inflight", Gauge),
		upstreamReplicas: c.desc("upstream_replicas", Gauge),
		upstreamPaused:   c.desc("upstream_paused", Gauge),
		limit:            c.desc("instance_limit", Gauge),
		buildInfo:        c.desc("build_info", Gauge),
	}
}

// Describe implements [prometheus.Collector].
func (s *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.inflight, s.sessions, s.registered, s.ended, s.traceBytes, s.evicted,
		s.journalBytes, s.journalErrors, s.poolServers, s.poolSlots, s.poolWaiting,
		s.upstreamInflight, s.upstreamReplicas, s.upstreamPaused, s.limit, s.buildInfo,
	} {
		ch <- d
	}
	for _, v := range s.upstreams.all() {
		v.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (s *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s.collectBuild(ch)
	s.collectLimits(ch)
	s.collectRegistry(ch)
	s.collectJournal(ch)
	s.collectPool(ch)
	s.collectUpstreams(ch)
}

func (s *stateCollector) collectBuild(ch chan<- prometheus.Metric) {
	gauge(ch, s.buildInfo, 1, known(s.sources.Version), known(s.sources.Revision), runtime.Version())
}

func (s *stateCollector) collectLimits(ch chan<- prometheus.Metric) {
	limits := s.sources.Limits
	for _, l := range []struct {
		resource string
		limit    float64
	}{
		{"sessions", float64(limits.Sessions)},
		{"inflight_requests", float64(limits.Inflight)},
		{"trace_bytes", float64(limits.TraceBytes)},
	} {
		if l.limit > 0 {
			gauge(ch, s.limit, l.limit, l.resource)
		}
	}
}

func (s *stateCollector) collectRegistry(ch chan<- prometheus.Metric) {
	var stats registry.Stats
	if s.sources.Registry != nil {
		stats = s.sources.Registry()
	}
	gauge(ch, s.inflight, float64(stats.Inflight))
	for _, state := range []registry.State{registry.StateActive, registry.StateStopped, registry.StateEnded} {
		gauge(ch, s.sessions, float64(stats.Sessions[state]), string(state))
	}
	gauge(ch, s.traceBytes, float64(stats.TraceBytes))
	counter(ch, s.registered, stats.Registered)
	counter(ch, s.evicted, stats.EvictedTraces)

	reasons := EndReasons()
	ended := make(map[string]int64, len(reasons))
	for reason, n := range stats.Ended {
		ended[closed(reason, reasons)] += n
	}
	for _, reason := range reasons {
		counter(ch, s.ended, ended[reason], reason)
	}
}

func (s *stateCollector) collectJournal(ch chan<- prometheus.Metric) {
	var state JournalState
	if s.sources.Journal != nil {
		state = s.sources.Journal()
	}
	gauge(ch, s.journalBytes, float64(state.Bytes))
	counter(ch, s.journalErrors, state.Errors)
}

func (s *stateCollector) collectUpstreams(ch chan<- prometheus.Metric) {
	var states []UpstreamState
	if s.sources.Upstreams != nil {
		states = slices.DeleteFunc(s.sources.Upstreams(), func(u UpstreamState) bool { return !utf8.ValidString(u.Name) })
	}
	s.upstreams.retain(states)
	for _, u := range states {
		gauge(ch, s.upstreamInflight, float64(u.Inflight), u.Name)
		gauge(ch, s.upstreamReplicas, float64(u.Up), u.Name, "up")
		gauge(ch, s.upstreamReplicas, float64(u.Down), u.Name, "down")
		gauge(ch, s.upstreamReplicas, float64(u.Draining), u.Name, "draining")
		paused := 0.0
		if u.Paused {
			paused = 1
		}
		gauge(ch, s.upstreamPaused, paused, u.Name)
	}
	for _, v := range s.upstreams.all() {
		v.Collect(ch)
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, value int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

// known gives the label value of a fact about the build that may be missing.
func known(fact string) string {
	if fact == "" {
		return "unknown"
	}
	return fact
}
