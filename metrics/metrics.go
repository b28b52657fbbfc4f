// Package metrics holds every Prometheus instrument of muxproxy.
//
// Events are counted as they happen, through the methods of [Metrics]; state (sessions, replicas, trace memory) is
// read at scrape, through the functions in [Sources], and never kept twice. [Catalogue] is the one list of names,
// labels and meanings.
//
// Every label takes its values from a closed set in this package or from the configuration. Whatever falls outside
// is counted under [Other], so that no path, model, secret, method or session id of a client ever makes a series.
// Series of an upstream exist from its first scrape after it was configured to its first scrape after it was deleted.
package metrics

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muxproxy/muxproxy/registry"
)

// Metrics counts what happens. Make one with [New]; all methods may be called concurrently and none of them
// allocates once its series exist.
type Metrics struct {
	// AdmissionWait takes the seconds each call waited for admission, refused ones included.
	AdmissionWait prometheus.Observer
	// RegisterDuration takes the seconds each registration took, a batch once.
	RegisterDuration prometheus.Observer
	// JournalCommitDuration takes the seconds each batch took to be written to the journal.
	JournalCommitDuration prometheus.Observer
	// Tunnels counts what happens to tunnels.
	Tunnels *Tunnels

	codes     *codeTable
	requests  *requests
	turns     counters
	failed    counters
	refusals  counters
	replays   counters
	upstreams *upstreams
}

// New makes the instruments and registers them, the scrape-time collector and Go's and the process's own on reg.
// A registerer takes one Metrics.
func New(reg prometheus.Registerer, sources Sources) (*Metrics, error) {
	c := newCatalogue()
	codes := newCodeTable()
	admissionWait, registerDuration := c.histogram("admission_wait_seconds"), c.histogram("register_duration_seconds")
	journalCommits := c.histogram("journal_commit_duration_seconds")
	m := &Metrics{
		AdmissionWait:    admissionWait,
		RegisterDuration: registerDuration,

		JournalCommitDuration: journalCommits,

		Tunnels:   newTunnels(c, sources.Driver),
		codes:     codes,
		requests:  newRequests(c, codes),
		turns:     newCounters(c, "turns_total", Dialects()),
		failed:    newCounters(c, "failed_calls_total", FailureKinds()),
		refusals:  newCounters(c, "refusals_total", Reasons()),
		replays:   newCounters(c, "replays_total", Replays()),
		upstreams: newUpstreams(c),
	}
	var errs []error
	for _, collector := range append(m.Tunnels.all(),
		admissionWait, registerDuration, journalCommits, m.turns.vec, m.failed.vec, m.refusals.vec, m.replays.vec,
		m.requests.total, m.requests.duration, m.requests.overhead,
		newStateCollector(c, sources, m.upstreams),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	) {
		errs = append(errs, reg.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// Handler serves what g gathers in the format the scraper asks for. A failing collector costs a 500, never a short
// answer that looks complete.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Request counts a data-plane request that is over. Call it once a request, whatever became of it.
func (m *Metrics) Request(r RequestRecord) { m.requests.observe(r) }

// Turn counts a committed turn.
func (m *Metrics) Turn(dialect string) { m.turns.get(dialect).Inc() }

// FailedCall counts an admitted call that made no turn.
func (m *Metrics) FailedCall(kind registry.FailureKind) { m.failed.get(string(kind)).Inc() }

// Refusal counts a call or a registration that muxproxy itself refused.
func (m *Metrics) Refusal(reason Reason) { m.refusals.get(string(reason)).Inc() }

// Replay counts a retry.
func (m *Metrics) Replay(kind Replay) { m.replays.get(string(kind)).Inc() }

// Upstream gives the instruments of a configured upstream; keep them for the length of a call. They may be used after
// the upstream was deleted, to no effect.
func (m *Metrics) Upstream(name string) *Upstream { return m.upstreams.get(name) }

// UpstreamDone counts a request to an upstream: code is its status in decimal or one of the Code
// constants.
func (m *Metrics) UpstreamDone(upstream, code string) {
	m.upstreams.done(upstream, m.codes.parse(code))
}

// ConnectionOpened counts a new connection to an upstream.
func (m *Metrics) ConnectionOpened(upstream string) { m.Upstream(upstream).connections.Inc() }
