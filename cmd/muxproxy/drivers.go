package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/command"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
	"github.com/muxproxy/muxproxy/tunnel/prime"
	"github.com/muxproxy/muxproxy/tunnel/ssh"
)

// driver makes the driver that TUNNEL chooses; nil where it is none that opens
// tunnels. The ledger may be nil.
func (c Config) driver(l *ledger.Ledger, log zerolog.Logger) (tunnel.Driver, error) {
	switch c.Tunnel {
	case tunnelFRP:
		return frp.New(c.frp(log))
	case tunnelPrime:
		return prime.New(c.prime(l, log))
	case tunnelSSH:
		return ssh.New(c.ssh(log))
	case tunnelCommand:
		return command.New(c.command(l, log))
	default:
		return nil, nil //nolint:nilnil // none and static open no tunnels
	}
}

// paceKey says whose rate TUNNEL_RATE is: what a provider counts by.
func (c Config) paceKey() string {
	switch c.Tunnel {
	case tunnelFRP:
		return strings.Join([]string{c.Tunnel, c.FRPServerAddr, string(c.FRPToken)}, "\n")
	case tunnelPrime:
		return strings.Join([]string{c.Tunnel, c.PrimeAPIBaseURL, string(c.PrimeAPIKey)}, "\n")
	case tunnelSSH:
		return strings.Join([]string{c.Tunnel, c.SSHAddr, c.SSHUser}, "\n")
	default:
		return strings.Join([]string{c.Tunnel, c.command(nil, zerolog.Nop()).Args[0]}, "\n")
	}
}

func (c Config) frp(log zerolog.Logger) frp.Options {
	return frp.Options{
		ServerAddr: c.FRPServerAddr,
		PublicURL:  c.FRPPublicURL,
		ProxyType:  c.FRPProxyType,
		Token:      string(c.FRPToken),
		PlainText:  !c.FRPTLS,
		CAFile:     c.FRPTLSCA,
		Logger:     log,
	}
}

func (c Config) prime(l *ledger.Ledger, log zerolog.Logger) prime.Options {
	return prime.Options{
		APIKey:  string(c.PrimeAPIKey),
		BaseURL: c.PrimeAPIBaseURL,
		TeamID:  c.PrimeTeamID,
		Ledger:  l,
		Logger:  log,
	}
}

func (c Config) ssh(log zerolog.Logger) ssh.Options {
	o := ssh.Options{
		Addr:        c.SSHAddr,
		User:        c.SSHUser,
		PublicURL:   c.SSHPublicURL,
		RemoteHost:  c.SSHRemoteHost,
		KeyFile:     c.SSHKeyFile,
		AgentSocket: c.User.SSHAgent,
		KnownHosts:  c.SSHKnownHosts,
		Logger:      log,
	}
	if c.User.Home != "" {
		o.Dir = filepath.Join(c.User.Home, ".ssh")
	}
	return o
}

// command is the preset, with what is set beside it in its place.
func (c Config) command(l *ledger.Ledger, log zerolog.Logger) command.Options {
	o, _ := command.Preset(c.TunnelCommandPreset) // the zero Options where none is chosen
	if len(c.TunnelCommand) > 0 {
		o.Args = c.TunnelCommand
	}
	o.URL = cmp.Or(c.TunnelCommandURL, o.URL)
	o.Template = cmp.Or(c.TunnelCommandShape, o.Template)
	o.Ready = cmp.Or(c.TunnelCommandReady, o.Ready)
	o.Fatal = cmp.Or(c.TunnelCommandFatal, o.Fatal)
	o.Env, o.Ledger, o.Logger = c.User.Environ, l, log
	return o
}

// needsLedger says that the driver makes what outlives a killed process.
func (c Config) needsLedger() bool { return c.Tunnel == tunnelPrime || c.Tunnel == tunnelCommand }

// checkDriver asks the driver itself about the settings, each of which is good
// when it is looked at alone.
func (p *problems) checkDriver(cfg Config) {
	if len(p.found) > 0 {
		return // they may be why
	}
	_, err := cfg.driver(nil, zerolog.Nop())
	if err == nil {
		return
	}
	name := map[string]string{
		tunnelFRP: "FRP_PUBLIC_URL", tunnelSSH: "SSH_PUBLIC_URL", tunnelCommand: "TUNNEL_COMMAND", tunnelPrime: "PRIME_API_BASE_URL",
	}[cfg.Tunnel]
	if strings.HasPrefix(err.Error(), "CAFile: ") {
		name = "FRP_TLS_CA"
	}
	p.add(name, "%s; accepts %s", driverProblem(err), fieldOf(name).Tag.Get("accepts"))
}

// driverProblem is what a driver says of its options, without their names, which
// are not those of the configuration.
func driverProblem(err error) string {
	if invalid, ok := errors.AsType[*tunnel.ConfigError](err); ok {
		err = invalid.Err
	}
	text := err.Error()
	for _, option := range []string{"PublicURL: ", "CAFile: ", "ServerAddr: ", "public URL: "} {
		text = strings.TrimPrefix(text, option)
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// loopback is where the servers listen whose tunnels need an address.
func loopback() string { return net.JoinHostPort("127.0.0.1", "0") }

// stateDir is the folder in which the processes of this user meet; "" where
// there is none.
func (c Config) stateDir(name string) (string, error) {
	if c.User.CacheDir == "" {
		return "", fmt.Errorf("neither XDG_CACHE_HOME nor HOME is set")
	}
	return filepath.Join(c.User.CacheDir, "muxproxy", name), nil
}
