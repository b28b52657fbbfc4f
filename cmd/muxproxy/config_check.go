package main

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// checkListeners checks the addresses, and that a public URL is known: the one
// of a wildcard address cannot be.
func (p *problems) checkListeners(cfg *Config) {
	for name, addr := range map[string]string{"LISTEN": cfg.Listen, "ADMIN_LISTEN": cfg.AdminListen} {
		if !isAddress(addr) {
			p.refuse(name)
		}
	}
	if _, port, _ := net.SplitHostPort(cfg.Listen); port != "0" && cfg.Listen == cfg.AdminListen && cfg.Tunnel == tunnelNone {
		p.add("ADMIN_LISTEN", "the same address as %sLISTEN; harnesses must not reach the admin API, so it needs its own", prefix)
	}
	if cfg.Tunnel != tunnelNone {
		return
	}
	if cfg.AdvertiseURL == "" {
		if isWildcard(cfg.Listen) {
			p.add("ADVERTISE_URL", "required, because %sLISTEN is on every address; accepts %s",
				prefix, fieldOf("ADVERTISE_URL").Tag.Get("accepts"))
		}
		return
	}
	cfg.AdvertiseURL = strings.TrimRight(cfg.AdvertiseURL, "/")
	u, err := url.Parse(cfg.AdvertiseURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		p.refuse("ADVERTISE_URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		p.add("ADVERTISE_URL", "harnesses append paths to it: no user, query or fragment; accepts %s",
			fieldOf("ADVERTISE_URL").Tag.Get("accepts"))
	}
}

func isAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isWildcard(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, _ := netip.ParseAddr(host)
	return host == "" || ip.IsUnspecified()
}

// isLoopback says whether only this machine can connect to addr. A host name
// other than localhost may resolve to anything, so it is not taken for one.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, _ := netip.ParseAddr(host)
	return host == "localhost" || ip.IsLoopback()
}

// checkAdminToken refuses an open admin API that other machines can reach, and
// metrics that ask for a token that there is not.
func (p *problems) checkAdminToken(cfg Config) {
	switch {
	case cfg.AdminToken != "" || len(p.found["ADMIN_TOKEN_FILE"]) > 0:
	case cfg.MetricsAuth:
		p.add("ADMIN_TOKEN", "required, because %sMETRICS_AUTH is true; accepts %s",
			prefix, fieldOf("ADMIN_TOKEN").Tag.Get("accepts"))
	case isAddress(cfg.AdminListen) && !isLoopback(cfg.AdminListen):
		p.add("ADMIN_TOKEN", "required, because %sADMIN_LISTEN is not loopback; accepts %s",
			prefix, fieldOf("ADMIN_TOKEN").Tag.Get("accepts"))
	}
}

// checkChoices checks the values that are one of a few words, and names.
func (p *problems) checkChoices(cfg Config) {
	for _, c := range []struct {
		name, value string
		choices     []string
	}{
		{"TUNNEL", cfg.Tunnel, driversOf("TUNNEL")},
		{"LOG_LEVEL", cfg.LogLevel, []string{"debug", "info", "warn", "error"}},
		{"LOG_FORMAT", cfg.LogFormat, []string{"", "json", "console"}},
	} {
		if !slices.Contains(c.choices, c.value) {
			p.refuse(c.name)
		}
	}
	if cfg.SessionHeader == "" || strings.ContainsFunc(cfg.SessionHeader, notInHeaderName) {
		p.refuse("SESSION_HEADER")
	}
}

// notInHeaderName: RFC 9110, 5.6.2, tokens.
func notInHeaderName(r rune) bool {
	alphanumeric := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
