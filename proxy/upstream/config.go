package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Style says how an upstream expects to be spoken to: which header carries its
// credential, and whether its replicas answer GET /health.
type Style string

// The styles an upstream may have; the empty one is [StyleOpenAI].
const (
	StyleOpenAI    Style = "openai"
	StyleVLLM      Style = "vllm"
	StyleSGLang    Style = "sglang"
	StyleAnthropic Style = "anthropic"
)

// probed reports whether replicas of this style are asked for their health.
func (s Style) probed() bool { return s == StyleVLLM || s == StyleSGLang }

// Usage says whether muxproxy may ask an upstream for token counts that the
// harness did not ask for.
type Usage string

// The values of usage; the empty one is [UsageAuto].
const (
	// UsageAuto asks until the upstream refuses a field muxproxy added.
	UsageAuto Usage = "auto"
	// UsageNever never asks.
	UsageNever Usage = "never"
)

// Config describes one named upstream. It holds credentials: it must not be
// logged or shown; [Status] is what may be.
type Config struct {
	// Replicas serve the same model; at least one.
	Replicas []ReplicaConfig `json:"replicas"`
	// APIKey is the credential sent to every replica; empty sends none.
	APIKey string `json:"api_key,omitempty"`
	// Headers are set last on every request, over whatever the harness sent.
	Headers map[string]string `json:"headers,omitempty"`
	// Style is [StyleOpenAI] when empty.
	Style Style `json:"style,omitempty"`
	// Usage is [UsageAuto] when empty.
	Usage Usage `json:"usage,omitempty"`
}

// ReplicaConfig is one address of an upstream.
type ReplicaConfig struct {
	// Name appears in turns and metrics; the URL's host and port when empty.
	Name string `json:"name,omitempty"`
	// URL is http or https. Without a path it gets /v1. User information in it
	// is sent as basic authentication unless an API key takes that header.
	URL string `json:"url"`
}

// InvalidError says which part of a [Config] cannot be used and why.
type InvalidError struct {
	// Field is the path of the field as it is written in JSON: replicas[1].url.
	Field string
	// Message never repeats a credential.
	Message string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Validate reports the first field that cannot be used, as an *[InvalidError].
func (c Config) Validate() error {
	_, err := c.settings()
	return err
}

// settings validates c and works out what every request of it needs.
func (c Config) settings() (*settings, error) {
	s := &settings{style: c.Style, usage: c.Usage}
	switch c.Style {
	case "":
		s.style = StyleOpenAI
	case StyleOpenAI, StyleVLLM, StyleSGLang, StyleAnthropic:
	default:
		return nil, &InvalidError{"style", "must be openai, vllm, sglang or anthropic"}
	}
	switch c.Usage {
	case "":
		s.usage = UsageAuto
	case UsageAuto, UsageNever:
	default:
		return nil, &InvalidError{"usage", "must be auto or never"}
	}
	if !validValue(c.APIKey) {
		return nil, &InvalidError{"api_key", "must not contain control characters"}
	}
	if err := s.setHeaders(c); err != nil {
		return nil, err
	}
	return s, s.setTargets(c.Replicas)
}

// setHeaders orders the configured headers last, so that they win.
func (s *settings) setHeaders(c Config) error {
	s.set("Accept-Encoding", "identity")
	if s.style == StyleAnthropic {
		s.version = []string{"2023-06-01"}
	}
	if c.APIKey != "" {
		s.apiKey = true
		if s.style == StyleAnthropic {
			s.set("X-Api-Key", c.APIKey)
		} else {
			s.set("Authorization", "Bearer "+c.APIKey)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at := "headers." + name
		key := http.CanonicalHeaderKey(name)
		switch {
		case !validToken(name):
			return &InvalidError{at, "is not a header name"}
		case !validValue(c.Headers[name]):
			return &InvalidError{at, "must not contain control characters"}
		case ofConnection(key):
			return &InvalidError{at, "belongs to the connection and cannot be configured"}
		case slices.Contains(s.headerNames, key):
			return &InvalidError{at, "is given twice"}
		}
		s.headerNames = append(s.headerNames, key)
		if key == "Host" {
			s.host = c.Headers[name]
			continue
		}
		s.set(key, c.Headers[name])
	}
	return nil
}

// set gives every request a header, in place of one of the same name.
func (s *settings) set(key, value string) {
	s.header = slices.DeleteFunc(s.header, func(f field) bool { return f.key == key })
	s.header = append(s.header, field{key, []string{value}})
}

// setTargets parses the replicas' URLs and gives nameless ones a name.
func (s *settings) setTargets(replicas []ReplicaConfig) error {
	if len(replicas) == 0 {
		return &InvalidError{"replicas", "must name at least one"}
	}
	names, bases := make(map[string]bool, len(replicas)), make(map[string]bool, len(replicas))
	for i, r := range replicas {
		t, err := parseTarget(r.URL)
		if err != nil {
			return &InvalidError{fmt.Sprintf("replicas[%d].url", i), err.Error()}
		}
		if bases[t.base()] {
			return &InvalidError{fmt.Sprintf("replicas[%d].url", i), "is used by another replica"}
		}
		bases[t.base()] = true
		t.replica = cmp.Or(r.Name, t.host)
		at := fmt.Sprintf("replicas[%d].name", i)
		if len(t.replica) > 128 || strings.ContainsFunc(t.replica, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return &InvalidError{at, "must be at most 128 printable ASCII characters without spaces"}
		}
		if names[t.replica] {
			return &InvalidError{at, "is used by another replica"}
		}
		names[t.replica] = true
		s.targets = append(s.targets, t)
	}
	return nil
}

// ofConnection reports whether the header describes one connection or message,
// which is net/http's business.
func ofConnection(key string) bool {
	switch key {
	case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// settings are a validated Config in the form requests need. They never change.
type settings struct {
	style       Style
	usage       Usage
	apiKey      bool
	host        string   // replaces the URL's host in the Host header
	version     []string // Anthropic-Version, unless the harness sent one
	header      []field  // of different names; the values are shared by all requests
	headerNames []string
	targets     []target
}

// field is one header of every request.
type field struct {
	key    string // canonical
	values []string
}

// validToken reports whether s can be a header name.
func validToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// tokenBytes are those of which tokens are made (RFC 9110, section 5.6.2).
var tokenBytes = func() (is [256]bool) { //nolint:gochecknoglobals // a table
	for c := byte('!'); c <= '~'; c++ {
		is[c] = strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) < 0
	}
	return is
}()

// validValue reports whether s can be a header value.
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
