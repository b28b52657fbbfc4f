package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PoolState is the servers of the pool and the places on them.
type PoolState struct {
	Servers map[string]int // by state, see [ServerStates]
	Used    int            // places with a session
	Free    int            // places without one on ready servers
	Coming  int            // places on servers that are not up yet
	Waiting int            // places that callers wait for
}

// ServerStates lists every value of the label state of pool_servers.
func ServerStates() []string {
	return []string{"opening", "probing", "ready", "failing", "draining", "lost", Other}
}

// Drivers lists every value of the label driver.
func Drivers() []string {
	return []string{"none", "static", "frp", "prime", "ssh", "command", Other}
}

// TunnelOutcome says how an attempt to open a tunnel ended, the value of the label outcome of tunnel_opens_total.
type TunnelOutcome string

// The outcomes of an attempt.
const (
	TunnelOK          TunnelOutcome = "ok"
	TunnelTransient   TunnelOutcome = "transient"    // it may work the next time
	TunnelRateLimited TunnelOutcome = "rate_limited" // the provider wants fewer attempts
	TunnelQuota       TunnelOutcome = "quota"        // the account may have no more tunnels
	TunnelAuth        TunnelOutcome = "auth"         // the provider refuses the credential
	TunnelConfig      TunnelOutcome = "config"       // what is configured cannot work
	TunnelNotReady    TunnelOutcome = "not_ready"    // up, but its public URL does not lead to the server
	TunnelCancelled   TunnelOutcome = "cancelled"    // not needed any more
	TunnelOther       TunnelOutcome = Other
)

// TunnelOutcomes lists every value of the label outcome of tunnel_opens_total.
func TunnelOutcomes() []TunnelOutcome {
	return []TunnelOutcome{
		TunnelOK, TunnelTransient, TunnelRateLimited, TunnelQuota, TunnelAuth, TunnelConfig, TunnelNotReady, TunnelCancelled, TunnelOther,
	}
}

// Tunnels counts what happens to the tunnels of the driver in [Sources]. All its series begin at zero.
type Tunnels struct {
	opens    *prometheus.CounterVec
	outcomes map[TunnelOutcome]prometheus.Counter
	duration prometheus.Histogram
	pacing   prometheus.Histogram

	losses, probeFailures *prometheus.CounterVec
	lost, probeFailed     prometheus.Counter
}

func newTunnels(c catalogue, driver string) *Tunnels {
	driver = closed(driver, Drivers())
	t := &Tunnels{
		opens:         c.counterVec("tunnel_opens_total"),
		outcomes:      make(map[TunnelOutcome]prometheus.Counter),
		duration:      c.histogram("tunnel_open_duration_seconds"),
		pacing:        c.histogram("tunnel_pacing_seconds"),
		losses:        c.counterVec("tunnel_losses_total"),
		probeFailures: c.counterVec("tunnel_probe_failures_total"),
	}
	for _, outcome := range TunnelOutcomes() {
		t.outcomes[outcome] = t.opens.WithLabelValues(driver, string(outcome))
	}
	t.lost, t.probeFailed = t.losses.WithLabelValues(driver), t.probeFailures.WithLabelValues(driver)
	return t
}

// Attempted counts an attempt to open a tunnel and how long the driver took for it.
func (t *Tunnels) Attempted(outcome TunnelOutcome, took time.Duration) {
	t.outcomes[closed(outcome, TunnelOutcomes())].Inc()
	t.duration.Observe(took.Seconds())
}

// Paced takes how long an attempt waited for its turn.
func (t *Tunnels) Paced(waited time.Duration) { t.pacing.Observe(waited.Seconds()) }

// Lost counts a public URL that is lost for good.
func (t *Tunnels) Lost() { t.lost.Inc() }

// ProbeFailed counts a failed probe of a server that had been ready.
func (t *Tunnels) ProbeFailed() { t.probeFailed.Inc() }

func (t *Tunnels) all() []prometheus.Collector {
	return []prometheus.Collector{t.opens, t.duration, t.pacing, t.losses, t.probeFailures}
}

func (s *stateCollector) collectPool(ch chan<- prometheus.Metric) {
	var pool PoolState
	if s.sources.Pool != nil {
		pool = s.sources.Pool()
	}
	states := ServerStates()
	servers := make(map[string]int, len(states))
	for state, n := range pool.Servers {
		servers[closed(state, states)] += n
	}
	for _, state := range states {
		gauge(ch, s.poolServers, float64(servers[state]), state)
	}
	gauge(ch, s.poolSlots, float64(pool.Used), "used")
	gauge(ch, s.poolSlots, float64(pool.Free), "free")
	gauge(ch, s.poolSlots, float64(pool.Coming), "coming")
	gauge(ch, s.poolWaiting, float64(pool.Waiting))
}
