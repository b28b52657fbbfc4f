package main

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// The drivers that TUNNEL chooses from.
const (
	tunnelNone    = "none"
	tunnelStatic  = "static"
	tunnelFRP     = "frp"
	tunnelPrime   = "prime"
	tunnelSSH     = "ssh"
	tunnelCommand = "command"
)

// Tunneling is the part of [Config] that says how harnesses reach the data
// plane. The for tag names the drivers for which a variable means something;
// without one it always does.
type Tunneling struct {
	Tunnel        string        `env:"TUNNEL" envDefault:"none" accepts:"none, static, frp, prime, ssh or command"`
	Multiplex     int           `env:"MULTIPLEX" envDefault:"32" accepts:"a whole number, at least 1" for:"static,frp,prime,ssh,command"`
	TunnelRate    Rate          `env:"TUNNEL_RATE" envDefault:"500/m" accepts:"a number per s, m or h, such as 500/m" for:"frp,prime,ssh,command"`
	TunnelMaxWait time.Duration `env:"TUNNEL_MAX_WAIT" envDefault:"5m" accepts:"a duration such as 5m" for:"frp,prime,ssh,command"`

	StaticServers StaticServers `env:"STATIC_SERVERS" accepts:"comma-separated URL=host:port pairs" for:"static"`

	FRPServerAddr string `env:"FRP_SERVER_ADDR" accepts:"host:port, or host for port 7000" for:"frp"`
	FRPToken      Secret `env:"FRP_TOKEN" accepts:"printable characters without spaces" for:"frp"`
	FRPTokenFile  string `env:"FRP_TOKEN_FILE" accepts:"a readable file" for:"frp"`
	FRPProxyType  string `env:"FRP_PROXY_TYPE" envDefault:"http" accepts:"http or tcp" for:"frp"`
	FRPPublicURL  string `env:"FRP_PUBLIC_URL" accepts:"an http or https URL with {subdomain} (type http) or {port} (type tcp)" for:"frp"`
	FRPTLS        bool   `env:"FRP_TLS" envDefault:"true" accepts:"true or false" for:"frp"`
	FRPTLSCA      string `env:"FRP_TLS_CA" accepts:"a readable PEM file" for:"frp"`

	PrimeAPIKey     Secret `env:"PRIME_API_KEY" accepts:"printable characters without spaces" for:"prime"`
	PrimeAPIKeyFile string `env:"PRIME_API_KEY_FILE" accepts:"a readable file" for:"prime"`
	PrimeAPIBaseURL string `env:"PRIME_API_BASE_URL" accepts:"an http or https URL" for:"prime"`
	PrimeTeamID     string `env:"PRIME_TEAM_ID" accepts:"a team's id" for:"prime"`

	SSHAddr       string `env:"SSH_ADDR" accepts:"host:port, or host for port 22" for:"ssh"`
	SSHUser       string `env:"SSH_USER" accepts:"a user name" for:"ssh"`
	SSHKeyFile    string `env:"SSH_KEY_FILE" accepts:"a readable file" for:"ssh"`
	SSHKnownHosts string `env:"SSH_KNOWN_HOSTS" accepts:"a readable file" for:"ssh"`
	SSHRemoteHost string `env:"SSH_REMOTE_HOST" envDefault:"localhost" accepts:"a host name or address" for:"ssh"`
	SSHPublicURL  string `env:"SSH_PUBLIC_URL" accepts:"an http or https URL with {port}" for:"ssh"`

	TunnelCommand       Argv           `env:"TUNNEL_COMMAND" accepts:"a JSON array of strings: the program and its arguments, in which {addr}, {host} and {port} are filled in" for:"command"`
	TunnelCommandPreset string         `env:"TUNNEL_COMMAND_PRESET" accepts:"cloudflared or ngrok" for:"command"`
	TunnelCommandURL    *regexp.Regexp `env:"TUNNEL_COMMAND_URL_REGEXP" accepts:"a regular expression (RE2); its first group, or all of it, is the URL" for:"command"`
	TunnelCommandShape  string         `env:"TUNNEL_COMMAND_URL" accepts:"an http or https URL with $1, the first group of TUNNEL_COMMAND_URL_REGEXP" for:"command"`
	TunnelCommandReady  *regexp.Regexp `env:"TUNNEL_COMMAND_READY_REGEXP" accepts:"a regular expression (RE2)" for:"command"`
	TunnelCommandFatal  *regexp.Regexp `env:"TUNNEL_COMMAND_FATAL_REGEXP" accepts:"a regular expression (RE2)" for:"command"`

	ProbeInterval time.Duration `env:"PROBE_INTERVAL" envDefault:"30s" accepts:"a duration such as 30s" for:"static,frp,prime,ssh,command"`
	ProbeTimeout  time.Duration `env:"PROBE_TIMEOUT" envDefault:"5s" accepts:"a duration such as 5s" for:"static,frp,prime,ssh,command"`
	EndpointGrace time.Duration `env:"ENDPOINT_GRACE" envDefault:"60s" accepts:"a duration such as 60s" for:"static,frp,prime,ssh,command"`

	PoolMin  int           `env:"POOL_MIN" envDefault:"1" accepts:"a whole number, 0 keeps none" zero:"keeps none" for:"frp,prime,ssh,command"`
	PoolMax  int           `env:"POOL_MAX" envDefault:"0" accepts:"a whole number, 0 is no cap" zero:"no cap" for:"frp,prime,ssh,command"`
	PoolIdle time.Duration `env:"POOL_IDLE" envDefault:"5m" accepts:"a duration such as 5m" for:"frp,prime,ssh,command"`
}

// elastic says that the pool opens and closes servers as they are needed.
func (c Tunneling) elastic() bool { return c.Tunnel != tunnelNone && c.Tunnel != tunnelStatic }

// driversOf are the drivers for which a variable means something.
func driversOf(name string) []string {
	drivers, some := fieldOf(name).Tag.Lookup("for")
	if !some {
		return []string{tunnelNone, tunnelStatic, tunnelFRP, tunnelPrime, tunnelSSH, tunnelCommand}
	}
	return strings.Split(drivers, ",")
}

// ineffective lists the variables that are set and mean nothing to the driver
// that is chosen. They are no error: who switches drivers by one variable
// leaves the others in place.
func ineffective(vars map[string]string, driver string) (names []string) {
	for f := range variables() {
		name := f.Tag.Get("env")
		if vars[prefix+name] != "" && !slices.Contains(driversOf(name), driver) {
			names = append(names, prefix+name)
		}
	}
	return names
}
