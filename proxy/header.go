package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	requestIDHeader         = "X-Request-Id"
	upstreamRequestIDHeader = "X-Upstream-Request-Id"
)

// withheld names the request headers that do not go up. They belong to one
// connection (RFC 9110, section 7.6.1), are the client's credential, describe
// bytes that may be edited, or were put there by a tunnel or proxy in front.
func withheld(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Authentication-Info", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Authorization", "X-Api-Key", "Api-Key", "Cookie",
		"Expect", "Accept-Encoding", "Content-Length", "Content-Encoding", "Host",
		"Content-Digest", "Repr-Digest", "Digest", "Content-Md5", "Signature", "Signature-Input",
		"Forwarded", "Via", "X-Real-Ip", "True-Client-Ip", "Cdn-Loop", requestIDHeader:
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Cf-") || strings.HasPrefix(name, "Ngrok-")
}

// passesUp says what goes up of a request's header.
func (x *exchange) passesUp(name string, values []string) bool {
	return !withheld(name) && name != x.proxy.options.SessionHeader && !connectionNames(x.request.Header, name) &&
		!slices.ContainsFunc(values, x.holdsSecret)
}

// connectionNames reports whether Connection declares a header hop-by-hop.
func connectionNames(h http.Header, name string) bool {
	for _, value := range h["Connection"] {
		if value == "keep-alive" || value == "close" {
			continue // as nearly all there are, and neither names a header that goes further
		}
		for token := range strings.SplitSeq(value, ",") {
			if http.CanonicalHeaderKey(trimSpace(token)) == name {
				return true
			}
		}
	}
	return false
}

// query is the request's query without the `key` parameter, in which some
// clients carry a credential, and without any other that holds the secret;
// everything else stays as it was written.
func (x *exchange) query() string {
	raw := x.request.URL.RawQuery
	if !strings.Contains(raw, "key") && !strings.Contains(raw, "%") && !x.holdsSecret(raw) {
		return raw
	}
	kept := make([]string, 0, 4)
	for parameter := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(parameter, "=")
		if decoded, err := url.QueryUnescape(name); err == nil && decoded == "key" || x.holdsSecret(parameter) {
			continue
		}
		kept = append(kept, parameter)
	}
	return strings.Join(kept, "&")
}

// answerHeader copies an upstream's response headers to the client's, except
// what belongs to the connection or to the length and coding of a body that
// muxproxy frames itself. Cookies stay behind because all sessions share one
// upstream account; the upstream's request id gets a name of its own.
func answerHeader(to, from http.Header) {
	for name, values := range from {
		switch name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
			"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding",
			"Set-Cookie", "Alt-Svc", ServerHeader, upstreamRequestIDHeader:
			continue
		case requestIDHeader:
			to[upstreamRequestIDHeader] = values
			continue
		}
		if !connectionNames(from, name) {
			to[name] = values
		}
	}
}

// streamHeader keeps proxies in between from holding a stream back.
func streamHeader(h http.Header) {
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// upstreamRequestID is the id under which the upstream knows a call. It is a copy,
// which may be kept without the header.
func upstreamRequestID(h http.Header) string {
	id := h.Get(requestIDHeader)
	if id == "" {
		id = h.Get("Request-Id")
	}
	return strings.Clone(id)
}

// maxRequestID bounds a client's request id.
const maxRequestID = 128

// validRequestID says whether a client's request id may go into headers and
// logs as it is.
func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '"' || c == '\\'
	})
}
