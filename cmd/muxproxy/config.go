package main

import (
	"net/url"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// prefix starts the name of every variable that muxproxy reads.
const prefix = "MUXPROXY_"

// Config is the whole configuration: one field a variable, named without the
// prefix in its env tag. The accepts tag says what a value may be, in words
// that error messages and docs/configuration.md repeat. Numbers are never
// negative, and zero only where the zero tag says what it means.
type Config struct {
	Listen       string `env:"LISTEN" envDefault:"127.0.0.1:8080" accepts:"host:port, port 0 picks a free one" for:"none"`
	AdminListen  string `env:"ADMIN_LISTEN" envDefault:"127.0.0.1:8081" accepts:"host:port, port 0 picks a free one"`
	AdvertiseURL string `env:"ADVERTISE_URL" accepts:"an http or https URL" for:"none"`
	ReadyFile    string `env:"READY_FILE" accepts:"a file path"`

	Tunneling

	AdminToken     Secret `env:"ADMIN_TOKEN" accepts:"printable characters without spaces"`
	AdminTokenFile string `env:"ADMIN_TOKEN_FILE" accepts:"a readable file"`
	MetricsAuth    bool   `env:"METRICS_AUTH" envDefault:"false" accepts:"true or false"`
	Pprof          bool   `env:"PPROF" envDefault:"false" accepts:"true or false"`

	UpstreamURL            URLs          `env:"UPSTREAM_URL" accepts:"comma-separated http or https URLs"`
	UpstreamAPIKey         Secret        `env:"UPSTREAM_API_KEY" accepts:"printable characters without spaces"`
	UpstreamAPIKeyFile     string        `env:"UPSTREAM_API_KEY_FILE" accepts:"a readable file"`
	UpstreamStyle          string        `env:"UPSTREAM_STYLE" envDefault:"openai" accepts:"openai, vllm, sglang or anthropic"`
	UpstreamHeaders        Headers       `env:"UPSTREAM_HEADERS" accepts:"comma-separated name=value pairs, or a JSON object of strings"`
	UpstreamUsage          string        `env:"UPSTREAM_USAGE" envDefault:"auto" accepts:"auto or never"`
	UpstreamsFile          string        `env:"UPSTREAMS_FILE" accepts:"a readable JSON file"`
	UpstreamHealthInterval time.Duration `env:"UPSTREAM_HEALTH_INTERVAL" envDefault:"10s" accepts:"a duration such as 10s"`
	SessionHeader          string        `env:"SESSION_HEADER" envDefault:"X-Session-ID" accepts:"a header name"`

	MaxSessions       int           `env:"MAX_SESSIONS" envDefault:"0" accepts:"a whole number, 0 is no cap" zero:"no cap"`
	MaxInflight       int           `env:"MAX_INFLIGHT" envDefault:"0" accepts:"a whole number, 0 is no cap" zero:"no cap"`
	MaxInflightBytes  *ByteSize     `env:"MAX_INFLIGHT_BYTES" accepts:"a size such as 512MiB, 0 is no cap" zero:"no cap"`
	RequestsPerSecond float64       `env:"REQUESTS_PER_SECOND" envDefault:"0" accepts:"a number, 0 is no cap" zero:"no cap"`
	AdmitTimeout      time.Duration `env:"ADMIT_TIMEOUT" envDefault:"60s" accepts:"a duration such as 60s"`
	MaxBodyBytes      ByteSize      `env:"MAX_BODY_BYTES" envDefault:"256MiB" accepts:"a size such as 256MiB"`

	Lease          time.Duration  `env:"LEASE" envDefault:"1h" accepts:"a duration such as 1h"`
	TombstoneTTL   time.Duration  `env:"TOMBSTONE_TTL" envDefault:"1h" accepts:"a duration such as 1h"`
	TraceRetention *time.Duration `env:"TRACE_RETENTION" accepts:"a duration such as 1h"`
	MaxTraceBytes  *ByteSize      `env:"MAX_TRACE_BYTES" accepts:"a size such as 4GiB, 0 is no cap" zero:"no cap"`
	StateDir       string         `env:"STATE_DIR" accepts:"a folder on a local disk"`
	Durability     string         `env:"DURABILITY" accepts:"memory, write or fsync"`

	Keepalive        time.Duration `env:"KEEPALIVE" envDefault:"3s" accepts:"a duration such as 3s, 0 is off" zero:"off"`
	ConnectTimeout   time.Duration `env:"CONNECT_TIMEOUT" envDefault:"10s" accepts:"a duration such as 10s"`
	FirstByteTimeout time.Duration `env:"FIRST_BYTE_TIMEOUT" envDefault:"15m" accepts:"a duration such as 15m"`
	IdleTimeout      time.Duration `env:"IDLE_TIMEOUT" envDefault:"5m" accepts:"a duration such as 5m"`
	WriteTimeout     time.Duration `env:"WRITE_TIMEOUT" envDefault:"60s" accepts:"a duration such as 60s"`
	HookHosts        HookHosts     `env:"HOOK_HOSTS" envDefault:"loopback" accepts:"comma-separated host names, addresses and networks; loopback is this machine, * any host"`
	RetryGrace       time.Duration `env:"RETRY_GRACE" envDefault:"2s" accepts:"a duration such as 2s, 0 is none" zero:"none"`
	ReplayMaxBytes   ByteSize      `env:"REPLAY_MAX_BYTES" envDefault:"64MiB" accepts:"a size such as 64MiB, 0 is nothing" zero:"nothing"`
	ShutdownTimeout  time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"25s" accepts:"a duration such as 25s"`

	LogLevel  string `env:"LOG_LEVEL" envDefault:"info" accepts:"debug, info, warn or error"`
	LogFormat string `env:"LOG_FORMAT" accepts:"json or console"`

	// Upstreams are the named upstreams that UPSTREAM_* and UPSTREAMS_FILE
	// amount to.
	Upstreams map[string]upstream.Config `env:"-"`
	// User is whom the daemon runs as.
	User account `env:"-"`
	// Ineffective are the variables that are set and mean nothing with TUNNEL as
	// it is.
	Ineffective []string `env:"-"`
	// NoColor keeps escape sequences out of console logs (NO_COLOR).
	NoColor bool `env:"-"`
}

// Secret is text that is never printed.
type Secret string

// String hides the secret from every fmt verb and log line.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// GoString hides the secret from %#v as well.
func (s Secret) GoString() string { return s.String() }

// loadConfig reads the configuration out of environ, whose entries are
// name=value. It reports every problem at once, as a *ConfigError.
func loadConfig(environ []string) (Config, error) {
	vars := env.ToMap(environ)
	p := newProblems(vars)
	cfg, err := env.ParseAsWithOptions[Config](env.Options{Environment: vars, Prefix: prefix})
	if err != nil {
		p.addParse(err)
	}
	p.checkNames()
	p.checkNumbers(cfg)
	p.checkListeners(&cfg)
	p.checkChoices(cfg)
	cfg.User = accountOf(vars)
	p.checkTunnel(&cfg)
	p.checkDurability(&cfg)
	cfg.AdminToken = p.secret("ADMIN_TOKEN", cfg.AdminToken, cfg.AdminTokenFile)
	cfg.UpstreamAPIKey = p.secret("UPSTREAM_API_KEY", cfg.UpstreamAPIKey, cfg.UpstreamAPIKeyFile)
	p.checkAdminToken(cfg)
	cfg.Upstreams = p.upstreams(cfg)
	if cfg.MaxTraceBytes == nil {
		cfg.MaxTraceBytes = new(quarterOfMemory())
	}
	if cfg.MaxInflightBytes == nil {
		cfg.MaxInflightBytes = new(min(2<<30, quarterOfMemory()))
	}
	p.checkDriver(cfg)
	cfg.Ineffective = ineffective(vars, cfg.Tunnel)
	cfg.NoColor = vars["NO_COLOR"] != ""
	return cfg, p.err()
}

// redacted is u without a password.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
