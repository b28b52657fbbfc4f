package metrics

import (
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Upstream holds the instruments of one upstream, resolved, so that a stream pays no look-up for an event.
type Upstream struct {
	// TimeToFirstEvent takes the seconds from dispatch to the first event of a stream.
	TimeToFirstEvent prometheus.Observer
	// StreamGap takes the seconds between two events of a stream.
	StreamGap prometheus.Observer

	connections                      prometheus.Counter
	input, output, cached, reasoning prometheus.Counter
}

// Tokens counts tokens of a committed turn. A count below one and an unknown type are ignored.
func (u *Upstream) Tokens(t TokenType, n int64) {
	if n < 1 {
		return
	}
	switch t {
	case TokensInput:
		u.input.Add(float64(n))
	case TokensOutput:
		u.output.Add(float64(n))
	case TokensCached:
		u.cached.Add(float64(n))
	case TokensReasoning:
		u.reasoning.Add(float64(n))
	}
}

// maxUnscraped bounds the upstreams known between two scrapes, whatever names are asked for; what exceeds it shares
// the name Other. A scrape drops the names that are not configured, so that none of them is ever exposed.
const maxUnscraped = 4096

// upstreams holds the instruments labelled with an upstream. They are collected by the state collector, which knows
// at each scrape which upstreams are configured, so that the series of a deleted one go with it.
type upstreams struct {
	timeToFirstEvent *prometheus.HistogramVec
	streamGap        *prometheus.HistogramVec
	tokens           *prometheus.CounterVec
	requests         *prometheus.CounterVec
	connections      *prometheus.CounterVec

	// mu guards known. Series are only made while it is held, so that retain never misses one.
	mu    sync.RWMutex
	known map[string]*Upstream
}

func newUpstreams(c catalogue) *upstreams {
	return &upstreams{
		timeToFirstEvent: c.histogramVec("time_to_first_event_seconds"),
		streamGap:        c.histogramVec("stream_gap_seconds"),
		tokens:           c.counterVec("tokens_total"),
		requests:         c.counterVec("upstream_requests_total"),
		connections:      c.counterVec("upstream_connections_opened_total"),
		known:            make(map[string]*Upstream),
	}
}

func (u *upstreams) get(name string) *Upstream {
	u.mu.RLock()
	known := u.known[name]
	u.mu.RUnlock()
	if known != nil {
		return known
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.resolve(u.bounded(name))
}

// done counts a request to the upstream under a code of the closed set.
func (u *upstreams) done(name, code string) {
	u.mu.RLock()
	if u.known[name] != nil {
		u.requests.WithLabelValues(name, code).Inc()
		u.mu.RUnlock()
		return
	}
	u.mu.RUnlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	name = u.bounded(name)
	u.resolve(name)
	u.requests.WithLabelValues(name, code).Inc()
}

// bounded gives the name to count name under; Prometheus panics on one that is not UTF-8. mu must be held.
func (u *upstreams) bounded(name string) string {
	if u.known[name] == nil && (len(u.known) >= maxUnscraped || !utf8.ValidString(name)) {
		return Other
	}
	return name
}

// resolve makes the series of name, at zero, unless they exist. mu must be held.
func (u *upstreams) resolve(name string) *Upstream {
	if known := u.known[name]; known != nil {
		return known
	}
	u.requests.WithLabelValues(name, "200")
	tokens := func(t TokenType) prometheus.Counter { return u.tokens.WithLabelValues(name, string(t)) }
	known := &Upstream{
		TimeToFirstEvent: u.timeToFirstEvent.WithLabelValues(name),
		StreamGap:        u.streamGap.WithLabelValues(name),
		connections:      u.connections.WithLabelValues(name),
		input:            tokens(TokensInput),
		output:           tokens(TokensOutput),
		cached:           tokens(TokensCached),
		reasoning:        tokens(TokensReasoning),
	}
	u.known[name] = known
	return known
}

// retain leaves the series of the configured upstreams and no others.
func (u *upstreams) retain(configured []UpstreamState) {
	names := make(map[string]bool, len(configured))
	for _, s := range configured {
		names[s.Name] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.known {
		if !names[name] {
			u.remove(name)
		}
	}
	for name := range names {
		u.resolve(name)
	}
}

// remove drops the series of name, each by its labels, for a partial match would look at every series. mu must be held.
func (u *upstreams) remove(name string) {
	delete(u.known, name)
	u.timeToFirstEvent.DeleteLabelValues(name)
	u.streamGap.DeleteLabelValues(name)
	u.connections.DeleteLabelValues(name)
	for _, t := range TokenTypes() {
		u.tokens.DeleteLabelValues(name, string(t))
	}
	for _, code := range Codes() {
		u.requests.DeleteLabelValues(name, code)
	}
}

// all lists the instruments for the collector.
func (u *upstreams) all() []prometheus.Collector {
	return []prometheus.Collector{u.timeToFirstEvent, u.streamGap, u.tokens, u.requests, u.connections}
}
