package command

import (
	"regexp"
	"time"
)

// Presets are the names that [Preset] knows.
func Presets() []string { return []string{"cloudflared", "ngrok"} }

// Preset returns the options for a well-known program, to which the caller adds
// Env and Ledger. It answers false for a name that it does not know.
func Preset(name string) (Options, bool) {
	switch name {
	case "cloudflared":
		return Options{
			Args: []string{"cloudflared", "tunnel", "--no-autoupdate", "--url", "http://{addr}"},
			// Two words or more, which api.trycloudflare.com is not.
			URL:     regexp.MustCompile(`https://[a-z0-9]+(?:-[a-z0-9]+)+\.trycloudflare\.com`),
			Ready:   regexp.MustCompile(`Registered tunnel connection`),
			Limited: regexp.MustCompile(`status_code="?429`),
			// The name gets into the DNS seconds after it is printed, and a look-up
			// before that is remembered as a failure for minutes.
			FirstProbe: 3 * time.Second,
		}, true
	case "ngrok":
		return Options{
			Args: []string{"ngrok", "http", "{addr}", "--log=stdout", "--log-format=logfmt"},
			URL:  regexp.MustCompile(`msg="started tunnel".*\burl=(https?://\S+)`),
			// 108 is the number of agents at once, 324 that of endpoints.
			Quota: regexp.MustCompile(`ERR_NGROK_(?:108|324)\b`),
			Fatal: regexp.MustCompile(`ERR_NGROK_\d+`),
		}, true
	default:
		return Options{}, false
	}
}
