package scripted

import (
	"bytes"
	"maps"
	"net/http"
)

// AddAnthropic makes u know the scripts that answer as the Messages API does.
// testdata/anthropic/README.md lists them.
func (u *Upstream) AddAnthropic() {
	for name, e := range anthropic() {
		u.set(name, e)
	}
}

func anthropic() map[string]entry {
	message := SSE(Fixture("anthropic/message.sse"))
	limited := Error(http.StatusTooManyRequests, Fixture("anthropic/429.json"), "Retry-After", "1", "Retry-After-Ms", "50")
	all := map[string]entry{
		"anthropic":              {respond: messages},
		"anthropic-429-once":     {respond: onceThen(limited, messages)},
		"anthropic-thinking":     {respond: family("anthropic/thinking")},
		"anthropic-max-tokens":   {respond: family("anthropic/max-tokens")},
		"anthropic-server-tools": {respond: family("anthropic/server-tools")},
		"anthropic-unknown":      {respond: family("anthropic/unknown")},
	}
	for name, s := range map[string]Script{
		"anthropic-429":              limited,
		"anthropic-context":          Error(http.StatusBadRequest, Fixture("anthropic/context.json")),
		"anthropic-error-first":      SSE(Fixture("anthropic/error-in-stream.sse")),
		"anthropic-error-after-text": SSE(Fixture("anthropic/error-after-text.sse")),
		"anthropic-no-stop":          SSE(Fixture("anthropic/no-stop.sse")),
		"anthropic-abort":            ending(message, 4, Abort),
		"anthropic-reset":            ending(message, 4, Reset),
		"anthropic-hang":             ending(message, 4, Hang),
	} {
		all[name] = fixed(s)
	}
	return all
}

// messages chooses among the recorded answers by what the request asks for, and
// sends the headers that the API sends.
func messages(r *Request) Script {
	w := wishOf(r)
	name := "anthropic/message"
	switch {
	case bytes.Contains(r.Body, []byte(`"tool_result"`)):
		name = "anthropic/answer"
	case len(w.Tools) > 0:
		name = "anthropic/tools"
	}
	s := file(name + w.plain())
	s.Header = s.Header.Clone()
	maps.Copy(s.Header, http.Header{
		"Request-Id":                              {"req_018EeWyXxfu5pfWkrYcMdjWG"},
		"Anthropic-Organization-Id":               {"5d1c3f6e-8a2b-4c7d-9e0f-1a2b3c4d5e6f"},
		"Anthropic-Ratelimit-Requests-Limit":      {"50"},
		"Anthropic-Ratelimit-Requests-Remaining":  {"49"},
		"Anthropic-Ratelimit-Input-Tokens-Reset":  {"2026-01-01T00:00:00Z"},
		"Anthropic-Ratelimit-Output-Tokens-Limit": {"8000"},
		"Strict-Transport-Security":               {"max-age=31536000; includeSubDomains; preload"},
	})
	return s
}
