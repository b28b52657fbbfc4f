package upstream

import (
	"errors"
	"strconv"
)

var (
	errHeader = errors.New("the request has a header that cannot be sent")
	errTarget = errors.New("the request's URL cannot be sent")
)

// appendHead appends the request up to its body.
func (m *message) appendHead(b []byte) ([]byte, error) {
	uri := m.url.RequestURI()
	if !validToken(m.method) || !validTarget(uri) {
		return nil, errTarget
	}
	b = append(append(append(append(b, m.method...), ' '), uri...), " HTTP/1.1\r\n"...)
	host := m.host
	if host == "" {
		host = m.url.Host
	}
	b = appendField(b, "Host", host)
	for key, values := range m.header {
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

// validTarget reports whether s ends at the space behind it.
func validTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// written lets the body go.
func (m *message) written() {
	if m.sent != nil {
		m.body = nil
		m.sent()
	}
}
