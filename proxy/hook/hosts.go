package hook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Hosts are the hosts that hook URLs may name, so that whoever may register a
// session cannot make muxproxy call anything it can reach. The zero value allows
// the loopback of this machine alone.
type Hosts struct {
	any      bool
	names    []string
	networks []netip.Prefix
}

// ParseHosts reads a comma-separated list of host names, addresses and networks
// (10.0.0.0/8); "loopback" is this machine, "*" any host. An empty list is the
// zero value.
func ParseHosts(list string) (Hosts, error) {
	var h Hosts
	if strings.TrimSpace(list) == "" {
		return h, nil
	}
	for entry := range strings.SplitSeq(list, ",") {
		var err error
		if h, err = h.with(strings.ToLower(strings.TrimSpace(entry))); err != nil {
			return Hosts{}, err
		}
	}
	return h, nil
}

func (h Hosts) with(entry string) (Hosts, error) {
	if entry == "*" {
		h.any = true
		return h, nil
	}
	if entry == "loopback" {
		h.names = append(h.names, "localhost")
		h.networks = append(h.networks, loopback()...)
		return h, nil
	}
	if network, err := netip.ParsePrefix(entry); err == nil {
		h.networks = append(h.networks, network)
		return h, nil
	}
	if address, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		h.networks = append(h.networks, netip.PrefixFrom(address, address.BitLen()))
		return h, nil
	}
	if entry == "" || strings.ContainsAny(entry, "/:@?#[]* \t") {
		return Hosts{}, fmt.Errorf("%q is neither a host name, an address nor a network", entry)
	}
	h.names = append(h.names, strings.TrimSuffix(entry, "."))
	return h, nil
}

func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// Check says why a hook must not be called at this URL.
func (h Hosts) Check(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("expected an http or https URL")
	case u.User != nil || u.Fragment != "":
		return errors.New("expected a URL without user and fragment")
	case !h.allow(strings.ToLower(u.Hostname())):
		return errors.New("expected a host that MUXPROXY_HOOK_HOSTS allows; by default only this machine's loopback")
	}
	return nil
}

func (h Hosts) allow(host string) bool {
	names, networks := h.names, h.networks
	if !h.any && names == nil && networks == nil {
		names, networks = []string{"localhost"}, loopback()
	}
	if address, err := netip.ParseAddr(host); err == nil {
		for _, network := range networks {
			if network.Contains(address.Unmap()) {
				return true
			}
		}
		return h.any
	}
	for _, name := range names {
		if strings.TrimSuffix(host, ".") == name {
			return true
		}
	}
	return h.any
}
