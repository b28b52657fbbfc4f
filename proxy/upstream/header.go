package upstream

import (
	"maps"
	"net/http"
)

// fields gives the header that goes up, but for the Host: what passes of the
// harness's, what the call and the upstream's configuration have of their own, which
// replaces what the harness sends under the same names.
func (m *message) fields(yield func(key string, values []string) bool) {
	version := field{"Anthropic-Version", m.settings.version}
	for key, values := range m.header {
		if m.replaces(key) || m.passes != nil && !m.passes(key, values) {
			continue
		}
		if key == version.key && version.values != nil {
			if len(values) == 0 || values[0] == "" {
				continue
			}
			version.values = nil
		}
		if !yield(unrepeatable(key), values) {
			return
		}
	}
	for _, f := range [...]field{m.own[0], m.own[1], {"Authorization", m.target.basic}, version} {
		if f.values != nil && !m.settings.sets(f.key) && !yield(f.key, f.values) {
			return
		}
	}
	for i := range m.settings.header {
		if f := &m.settings.header[i]; !yield(f.key, f.values) {
			return
		}
	}
}

// replaces reports whether what the harness sends under a name does not go up: it is
// a credential, or there is another.
func (m *message) replaces(key string) bool {
	switch key {
	case "Authorization", "X-Api-Key", "Api-Key", m.own[0].key, m.own[1].key:
		return true
	}
	return m.settings.sets(key)
}

// sets reports whether every request has a header of that name by configuration.
func (s *settings) sets(key string) bool {
	for i := range s.header {
		if s.header[i].key == key {
			return true
		}
	}
	return false
}

// unrepeatable is the name under which a header goes up. With one of these names
// net/http, here or in a router behind, takes a POST to be repeatable, and sends it
// again although a generation may have begun; it looks for them as they are written.
func unrepeatable(key string) string {
	switch key {
	case "Idempotency-Key":
		return "idempotency-key"
	case "X-Idempotency-Key":
		return "x-idempotency-key"
	}
	return key
}

// netHeader is the header as net/http is to send it.
func (m *message) netHeader() http.Header {
	h := http.Header{"User-Agent": nil} // or net/http sends its own
	maps.Insert(h, m.fields)
	return h
}
