package upstream

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// target is where a replica listens, and how a route becomes a URL there.
type target struct {
	replica string // its name
	scheme  string
	host    string   // with the port when one was given
	name    string   // of the host, without the port
	prefix  string   // escaped path that stands for /v1; no slash at its end
	query   string   // of the configured URL; goes before the request's own
	basic   []string // the Authorization header from the URL's user information
	shown   string   // the URL as it may be shown
	raw     string   // the URL as it was configured
}

// parseTarget reads a replica's URL. Its errors do not repeat it, because it
// may carry a password.
func parseTarget(raw string) (target, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil && strings.Contains(raw, "://"):
		return target{}, errors.New("is not a URL")
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		return target{}, errors.New("must start with http:// or https://")
	case u.Hostname() == "":
		return target{}, errors.New("has no host")
	case u.Fragment != "":
		return target{}, errors.New("must not have a fragment")
	case isRoute(u.Path):
		return target{}, errors.New("must be where the API's routes begin, and not one of them: leave out what follows /v1")
	}
	t := target{
		scheme: u.Scheme,
		host:   u.Host,
		name:   u.Hostname(),
		prefix: strings.TrimRight(u.EscapedPath(), "/"),
		query:  u.RawQuery,
		shown:  shown(*u),
		raw:    raw,
	}
	if t.prefix == "" {
		t.prefix = "/v1"
	}
	if u.User != nil {
		password, _ := u.User.Password()
		t.basic = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))}
	}
	return t, nil
}

// tlsAddr is what a connection to an https replica is dialed for.
func (t *target) tlsAddr() string {
	_, port, _ := net.SplitHostPort(t.host) // none may have been given
	return net.JoinHostPort(t.name, cmp.Or(port, "443"))
}

// isRoute reports whether a path is that of one call, to which no route can be
// joined.
func isRoute(path string) bool {
	path = strings.TrimRight(path, "/")
	for _, route := range []string{"/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"} {
		if strings.HasSuffix(path, route) {
			return true
		}
	}
	return false
}

// url joins a canonical route, in its escaped form, to the replica's URL: what
// follows /v1 goes behind the configured path, and a route outside /v1, such as
// /tokenize, beside it.
func (t *target) url(path, query string) *url.URL {
	base, rest := t.join(path)
	joined := base + rest
	u := &url.URL{Scheme: t.scheme, Host: t.host, Path: joined, RawQuery: query}
	if t.query != "" {
		u.RawQuery = t.query
		if query != "" {
			u.RawQuery += "&" + query
		}
	}
	if strings.IndexByte(joined, '%') >= 0 {
		if unescaped, err := url.PathUnescape(joined); err == nil {
			u.Path, u.RawPath = unescaped, joined
		}
	}
	return u
}

func (t *target) join(path string) (base, rest string) {
	if rest, ok := strings.CutPrefix(path, "/v1"); ok && (rest == "" || rest[0] == '/') {
		return t.prefix, rest
	}
	return strings.TrimSuffix(t.prefix, "/v1"), path
}

// base is what tells replicas apart, whoever signs in.
func (t *target) base() string { return t.scheme + "://" + t.host + t.prefix }

// healthURL is where inference servers say how they are: at the root of the
// host, whatever the path of the API.
func (t *target) healthURL() *url.URL {
	return &url.URL{Scheme: t.scheme, Host: t.host, Path: "/health"}
}

// JoinURL gives the URL that a request for a canonical route goes to, with user
// information hidden; path is escaped and query is without its question mark.
func JoinURL(replica, path, query string) (string, error) {
	t, err := parseTarget(replica)
	if err != nil {
		return "", fmt.Errorf("parse replica URL: %w", err)
	}
	return t.url(path, query).String(), nil
}

// shown hides who u signs in as, and how.
func shown(u url.URL) string {
	if u.User != nil {
		u.User = url.User("xxxxx")
	}
	return u.String()
}
