package upstream

import (
	"cmp"
	"errors"
	"strconv"
)

var (
	errHeader = errors.New("the request has a header that cannot be sent")
	errTarget = errors.New("the request's URL cannot be sent")
)

// appendHead appends the request up to its body.
func (m *message) appendHead(b []byte) ([]byte, error) {
	if !validToken(m.method) {
		return nil, errTarget
	}
	b = append(append(b, m.method...), ' ')
	start := len(b)
	if b = m.appendTarget(b); !validTarget(b[start:]) {
		return nil, errTarget
	}
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", cmp.Or(m.settings.host, m.target.host))
	for key, values := range m.fields {
		switch {
		case key == "Host" || ofConnection(key):
			continue // this is a message of its own
		case !validToken(key):
			return nil, errHeader
		}
		for _, v := range values {
			if !validValue(v) {
				return nil, errHeader
			}
			b = appendField(b, key, v)
		}
	}
	if len(m.body) > 0 || hasBody(m.method) {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(m.body)), 10), "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

func appendField(b []byte, key, value string) []byte {
	return append(append(append(append(b, key...), ": "...), value...), "\r\n"...)
}

// hasBody reports whether a request of the method has one even if it is empty.
func hasBody(method string) bool {
	return method == "POST" || method == "PUT" || method == "PATCH"
}

// appendTarget appends what a request asks for, as [url.URL.RequestURI] gives it. Of
// the usual ones no URL is made.
func (m *message) appendTarget(b []byte) []byte {
	if m.health || m.query != "" || m.target.query != "" || !unreserved(m.path) {
		return append(b, m.url().RequestURI()...)
	}
	base, rest := m.target.join(m.path)
	return append(append(b, base...), rest...)
}

// unreserved reports whether a path is written in one way only (RFC 3986, section 2.3).
func unreserved(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '/', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// validTarget reports whether b ends at the space behind it.
func validTarget(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// written lets the header and the body go.
func (m *message) written() {
	if m.request != nil {
		m.header, m.passes, m.body = nil, nil, nil
		m.request.written()
	}
}
