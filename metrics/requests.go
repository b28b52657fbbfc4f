package metrics

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RequestRecord is what [Metrics.Request] needs to know of a data-plane request.
type RequestRecord struct {
	Route    Route
	Code     int // the status answered; 499 when the client left before one
	Outcome  Outcome
	Stream   bool          // the answer was a stream
	Duration time.Duration // from the request's headers to the last byte of the answer
	Overhead time.Duration // muxproxy's own share of it; zero or less is not measured
}

// requests holds the instruments of data-plane requests and the children of the label combinations seen so far.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	overhead *prometheus.HistogramVec

	routes   []Route
	outcomes []Outcome
	codes    *codeTable

	mu       sync.RWMutex
	children map[requestKey]requestChildren // bounded, for a key holds values of closed sets only
}

// requestKey is one combination of label values.
type requestKey struct {
	route   Route
	code    string
	outcome Outcome
	stream  bool
}

type requestChildren struct {
	total    prometheus.Counter
	duration prometheus.Observer
	overhead prometheus.Observer
}

// newRequests makes the instruments. The series of calls that become turns start at zero; the others, most of which
// never occur, start at their first request.
func newRequests(c catalogue, codes *codeTable) *requests {
	r := &requests{
		total:    c.counterVec("requests_total"),
		duration: c.histogramVec("request_duration_seconds"),
		overhead: c.histogramVec("overhead_seconds"),
		routes:   Routes(),
		outcomes: Outcomes(),
		codes:    codes,
		children: make(map[requestKey]requestChildren),
	}
	for _, route := range recordedRoutes() {
		for _, stream := range []bool{false, true} {
			r.get(requestKey{route: route, code: "200", outcome: OutcomeOK, stream: stream})
		}
	}
	return r
}

func (r *requests) observe(rec RequestRecord) {
	c := r.get(requestKey{
		route: closed(rec.Route, r.routes), code: r.codes.label(rec.Code),
		outcome: closed(rec.Outcome, r.outcomes), stream: rec.Stream,
	})
	c.total.Inc()
	c.duration.Observe(rec.Duration.Seconds())
	if rec.Overhead > 0 {
		c.overhead.Observe(rec.Overhead.Seconds())
	}
}

// get gives the children of key, resolved once.
func (r *requests) get(key requestKey) requestChildren {
	r.mu.RLock()
	c, ok := r.children[key]
	r.mu.RUnlock()
	if ok {
		return c
	}
	c = requestChildren{
		total:    r.total.WithLabelValues(string(key.route), key.code, string(key.outcome)),
		duration: r.duration.WithLabelValues(string(key.route), strconv.FormatBool(key.stream)),
		overhead: r.overhead.WithLabelValues(string(key.route)),
	}
	r.mu.Lock()
	r.children[key] = c
	r.mu.Unlock()
	return c
}

// closed returns value when it is one of known, else [Other].
func closed[T ~string](value T, known []T) T {
	if slices.Contains(known, value) {
		return value
	}
	return Other
}

// counters is a counter over one closed label, its children resolved at the start so that each is exposed at zero.
type counters struct {
	vec      *prometheus.CounterVec
	children map[string]prometheus.Counter
}

// newCounters makes the counter of that name; values must hold Other.
func newCounters[T ~string](c catalogue, name string, values []T) counters {
	s := counters{vec: c.counterVec(name), children: make(map[string]prometheus.Counter, len(values))}
	for _, value := range values {
		s.children[string(value)] = s.vec.WithLabelValues(string(value))
	}
	return s
}

func (s counters) get(value string) prometheus.Counter {
	if c, ok := s.children[value]; ok {
		return c
	}
	return s.children[Other]
}
