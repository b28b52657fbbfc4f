package frp

import (
	"fmt"
	"strings"

	"github.com/muxproxy/muxproxy/tunnel"
)

// refusal is a server's "no" to a login or a proxy. The protocol gives a text
// for people and no code, so that the text has to tell what to do; a server
// with detailedErrorsToClient off says next to nothing.
type refusal struct {
	text  string
	login bool // to a login, else to a proxy
}

// Error is what the server said.
func (r *refusal) Error() string {
	if r.login {
		return "login refused: " + r.text
	}
	return "proxy refused: " + r.text
}

// classified is the refusal as the pool is told of it.
func (r *refusal) classified() error {
	switch {
	case r.passes():
		return &tunnel.TransientError{Err: r}
	case r.login:
		return &tunnel.AuthError{Err: r}
	case r.says("exceed the max_ports_per_client", "no available port"):
		return &tunnel.QuotaError{Err: r}
	case r.says("port not allowed", "not supported", "should not be"):
		return &tunnel.ConfigError{Err: r}
	default: // a name, route or port that is still taken, or a plugin's word
		return &tunnel.TransientError{Err: r}
	}
}

// passes says that the server had a fault and judged nothing.
func (r *refusal) passes() bool {
	return r.says("request to plugin error", "unexpected error", "control manager is closed", "control was replaced")
}

func (r *refusal) says(any ...string) bool {
	for _, text := range any {
		if strings.Contains(r.text, text) {
			return true
		}
	}
	return false
}

// stepLogin is the step of a [silenceError] after which the server holds what
// the client logged in with.
const stepLogin = "login"

// silenceError says that the server did not answer in time.
type silenceError struct {
	to string
}

// Error names what got no answer.
func (e *silenceError) Error() string { return fmt.Sprintf("no answer to the %s", e.to) }
