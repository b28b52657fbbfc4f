package main

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/muxproxy/muxproxy/tunnel/command"
)

// checkTunnel checks what the chosen driver needs. What the others would need
// is not looked at.
func (p *problems) checkTunnel(cfg *Config) {
	p.checkTunnelIsSet(cfg.Tunnel)
	if cfg.PoolMax > 0 && cfg.PoolMax < cfg.PoolMin && cfg.elastic() {
		p.add("POOL_MAX", "less than %sPOOL_MIN, which is %d; accepts %s", prefix, cfg.PoolMin, fieldOf("POOL_MAX").Tag.Get("accepts"))
	}
	switch cfg.Tunnel {
	case tunnelStatic:
		p.checkStatic(cfg)
	case tunnelFRP:
		p.checkFRP(cfg)
	case tunnelPrime:
		p.checkPrime(cfg)
	case tunnelSSH:
		p.checkSSH(cfg)
	case tunnelCommand:
		p.checkCommand(cfg)
	}
}

// checkTunnelIsSet refuses the settings of a driver where none is chosen: they
// are not there to have no effect.
func (p *problems) checkTunnelIsSet(driver string) {
	if p.vars[prefix+"TUNNEL"] != "" {
		return
	}
	for _, name := range ineffective(p.vars, driver) {
		if wants := driversOf(strings.TrimPrefix(name, prefix)); len(wants) == 1 {
			p.add("TUNNEL", "not set, but %s is, which is for %s; set it to %[2]s, or to none", name, wants[0])
			return
		}
	}
}

func (p *problems) checkStatic(cfg *Config) {
	const name = "STATIC_SERVERS"
	p.require(name, len(cfg.StaticServers) > 0)
	seen := make(map[string]bool)
	for _, s := range cfg.StaticServers {
		switch {
		case !isAddress(s.Addr):
			p.addTo(name, "%q is not an address; accepts %s", s.Addr, fieldOf(name).Tag.Get("accepts"))
		case !isBaseURL(s.URL):
			p.addTo(name, "%q is not an http or https URL without user, query and fragment; accepts %s", redacted(s.URL), fieldOf(name).Tag.Get("accepts"))
		case s.Addr == cfg.AdminListen:
			p.addTo(name, "%s is %sADMIN_LISTEN too; harnesses must not reach the admin API", s.Addr, prefix)
		case seen[s.URL] || seen[s.Addr] && !strings.HasSuffix(s.Addr, ":0"):
			p.addTo(name, "%s or %s is there twice", redacted(s.URL), s.Addr)
		}
		seen[s.URL], seen[s.Addr] = true, true
	}
}

func (p *problems) checkFRP(cfg *Config) {
	cfg.FRPToken = p.secret("FRP_TOKEN", cfg.FRPToken, cfg.FRPTokenFile)
	cfg.FRPServerAddr = p.remote("FRP_SERVER_ADDR", cfg.FRPServerAddr, "7000")
	switch cfg.FRPProxyType {
	case "http":
		p.checkTemplate("FRP_PUBLIC_URL", &cfg.FRPPublicURL, "{subdomain}")
	case "tcp":
		p.checkTemplate("FRP_PUBLIC_URL", &cfg.FRPPublicURL, "{port}")
	default:
		p.refuse("FRP_PROXY_TYPE")
	}
	if cfg.FRPTLSCA != "" && !cfg.FRPTLS {
		p.add("FRP_TLS_CA", "set, but %sFRP_TLS is false", prefix)
	}
	p.checkReadable("FRP_TLS_CA", cfg.FRPTLSCA)
}

func (p *problems) checkSSH(cfg *Config) {
	cfg.SSHAddr = p.remote("SSH_ADDR", cfg.SSHAddr, "22")
	cfg.SSHUser = cmp.Or(cfg.SSHUser, cfg.User.Name)
	p.require("SSH_USER", cfg.SSHUser != "")
	p.checkTemplate("SSH_PUBLIC_URL", &cfg.SSHPublicURL, "{port}")
	p.checkReadable("SSH_KEY_FILE", cfg.SSHKeyFile)
	p.checkReadable("SSH_KNOWN_HOSTS", cfg.SSHKnownHosts)
}

func (p *problems) checkCommand(cfg *Config) {
	switch {
	case cfg.TunnelCommandPreset == "":
		p.require("TUNNEL_COMMAND", len(cfg.TunnelCommand) > 0)
		p.require("TUNNEL_COMMAND_URL_REGEXP", cfg.TunnelCommandURL != nil)
	case !slices.Contains(command.Presets(), cfg.TunnelCommandPreset):
		p.refuse("TUNNEL_COMMAND_PRESET")
	}
	if len(cfg.TunnelCommand) > 0 && !slices.ContainsFunc(cfg.TunnelCommand, hasAddress) {
		p.add("TUNNEL_COMMAND", "no argument has {addr} or {port}, which say where the server is; accepts %s", fieldOf("TUNNEL_COMMAND").Tag.Get("accepts"))
	}
	const group = "$1"
	if shape := cfg.TunnelCommandShape; shape != "" {
		if !strings.Contains(shape, group) || !isBaseURL(strings.ReplaceAll(shape, group, "1")) ||
			cfg.TunnelCommandURL != nil && cfg.TunnelCommandURL.NumSubexp() == 0 {
			p.refuse("TUNNEL_COMMAND_URL")
		}
	}
}

// hasAddress tells whether the argument of a command says where the server is.
func hasAddress(argument string) bool {
	return strings.Contains(argument, "{addr}") || strings.Contains(argument, "{port}")
}

// require refuses a variable that is missing. One whose value was refused has
// its problem already.
func (p *problems) require(name string, there bool) {
	if !there {
		p.add(name, "required with %sTUNNEL=%s; accepts %s", prefix, p.vars[prefix+"TUNNEL"], fieldOf(name).Tag.Get("accepts"))
	}
}

// remote is a required address, with a port.
func (p *problems) remote(name, addr, port string) string {
	p.require(name, addr != "")
	if addr == "" {
		return addr
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
	}
	host, port, err := net.SplitHostPort(addr)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	if err != nil || notNumber != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		p.refuse(name)
	}
	return addr
}

// checkTemplate checks a required URL in which a part is filled in.
func (p *problems) checkTemplate(name string, template *string, part string) {
	p.require(name, *template != "")
	*template = strings.TrimRight(*template, "/")
	if *template != "" && (!strings.Contains(*template, part) || !isBaseURL(strings.ReplaceAll(*template, part, "1"))) {
		p.refuse(name)
	}
}

func (p *problems) checkReadable(name, file string) {
	if file == "" {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		p.add(name, "%v; accepts %s", err, fieldOf(name).Tag.Get("accepts"))
		return
	}
	_ = f.Close() // nothing was written
}

// isBaseURL says that paths can be appended to an address.
func isBaseURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && u.Fragment == "" && !strings.ContainsAny(raw, "{}")
}
