package frp

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	subdomainVariable = "{subdomain}"
	portVariable      = "{port}"
)

// urlTemplate is a public URL around its one variable part.
type urlTemplate struct {
	before, variable, after string
}

// parseTemplate checks the template for proxies of this type.
func parseTemplate(template, proxyType string) (urlTemplate, error) {
	variable, example, sample := subdomainVariable, "https://{subdomain}.example.net", "a"
	if proxyType == TypeTCP {
		variable, example, sample = portVariable, "http://example.net:{port}", "1"
	}
	template = strings.TrimSuffix(template, "/")
	before, after, found := strings.Cut(template, variable)
	u := urlTemplate{before: before, variable: variable, after: after}
	parsed, err := url.Parse(u.with(sample))
	_, host, hasScheme := strings.Cut(before, "://")
	switch {
	case !found || strings.ContainsAny(before+after, "{}"):
		err = errors.New("the variable is missing, or not the only one")
	case err != nil:
	case !hasScheme || parsed.Scheme != "http" && parsed.Scheme != "https":
		err = errors.New("the scheme is neither http nor https")
	case parsed.User != nil || parsed.Path != "" || parsed.RawQuery != "" || parsed.Fragment != "":
		err = errors.New("there is more than a scheme, a host and a port")
	case variable == subdomainVariable && (host != "" || !strings.HasPrefix(after, ".") || len(parsed.Hostname()) < len("a.b")):
		err = errors.New("the variable is not the first label of the host")
	case variable == portVariable && (after != "" || !strings.HasSuffix(host, ":") || parsed.Hostname() == ""):
		err = errors.New("the variable is not the port")
	}
	if err != nil {
		return urlTemplate{}, fmt.Errorf("%q is not like %s: %w", template, example, err)
	}
	return u, nil
}

// String is the template.
func (u urlTemplate) String() string { return u.with(u.variable) }

// with is the URL for this value of the variable.
func (u urlTemplate) with(value string) string { return u.before + value + u.after }

// value is the inverse of with.
func (u urlTemplate) value(from string) (string, error) {
	rest, begins := strings.CutPrefix(from, u.before)
	value, ends := strings.CutSuffix(rest, u.after)
	if !begins || !ends || value == "" {
		return "", fmt.Errorf("the URL is none of %s", u)
	}
	return value, nil
}

// subdomain is the variable's value, one label of a host name.
func (u urlTemplate) subdomain(from string) (string, error) {
	value, err := u.value(from)
	if err == nil && strings.Trim(value, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		err = fmt.Errorf("%q is no subdomain", value)
	}
	return value, err
}

// port is the variable's value.
func (u urlTemplate) port(from string) (int, error) {
	value, err := u.value(from)
	if err != nil {
		return 0, err
	}
	return parsePort(value)
}

func parsePort(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return int(port), nil
}
