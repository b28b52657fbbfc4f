package proxy

import (
	"net/http"
	"strings"

	"github.com/muxproxy/muxproxy/registry"
)

// authenticate finds the session that the request's secret names. The error
// does not say more about an unknown secret than about none.
func (x *exchange) authenticate() (*registry.Session, error) {
	if x.secret == "" {
		return nil, registry.ErrUnknownSecret
	}
	session, err := x.proxy.options.Registry.Lookup(x.secret)
	if err != nil {
		return nil, err
	}
	x.sessionID = session.ID()
	return session, nil
}

// holdsSecret says whether a part of the request is, or has in it, the secret.
// Clients carry it in places of their own as well, and it goes no further.
func (x *exchange) holdsSecret(text string) bool {
	return x.secret != "" && strings.Contains(text, x.secret)
}

// bearer is the secret of a request: in Authorization with the Bearer scheme
// (RFC 6750, section 2.1; the scheme in any case, RFC 9110, section 11.1, and
// white space forgiven), else in x-api-key, as Anthropic's SDKs send it, else
// in api-key, as Azure's do.
func bearer(h http.Header) string {
	scheme, token, ok := strings.Cut(trimSpace(strings.ReplaceAll(h.Get("Authorization"), "\t", " ")), " ")
	if token = trimSpace(token); ok && token != "" && strings.EqualFold(scheme, "bearer") {
		return token
	}
	if key := trimSpace(h.Get("X-Api-Key")); key != "" {
		return key
	}
	return trimSpace(h.Get("Api-Key"))
}

func trimSpace(s string) string { return strings.Trim(s, " \t") }
