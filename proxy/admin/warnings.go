package admin

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// warnings name the settings of a session that are without effect as its upstream
// is now. They are no errors: an upstream can be replaced at any time, and what it
// refuses is known only once it was asked. An ended session has none.
func (a *API) warnings(s *registry.Session) []string {
	found := []string{}
	if s.State() == registry.StateEnded {
		return found
	}
	settings := s.Settings()
	u, ok := a.opts.Upstreams.Get(settings.Upstream)
	if !ok {
		return append(found, "upstream: there is no upstream "+settings.Upstream+"; calls fail until there is")
	}
	refused := dialect.AddedOf(u.Refused())
	_, asked := settings.Sampling["return_token_ids"]
	switch {
	case !settings.Capture.TokenIDs || asked:
	case dialect.EngineOf(string(u.Style())) == dialect.NoEngine:
		found = append(found, "capture.token_ids: none are asked for, because the style of upstream "+u.Name()+" is "+string(u.Style())+"; expected vllm or sglang")
	case refused.TokenIDs:
		found = append(found, "capture.token_ids: none are asked for, because upstream "+u.Name()+" has refused a request that did")
	}
	if settings.Capture.Logprobs && refused.Logprobs {
		found = append(found, "capture.logprobs: none are asked for, because upstream "+u.Name()+" has refused a request that did")
	}
	if settings.HasTokenLimit {
		switch turns := s.Uncounted(); {
		case turns > 0:
			found = append(found, fmt.Sprintf("limits: the tokens of %d turns are not counted, because their upstream has said nothing of their usage", turns))
		case !u.AsksUsage() || refused.Usage:
			found = append(found, "limits: the tokens of a stream are counted only if the harness asks for them, because upstream "+u.Name()+" is not asked for usage")
		}
	}
	return found
}

// logWarnings logs each warning of the sessions that were registered, once for all
// of them.
func (a *API) logWarnings(all []*registration) {
	sessions := make(map[string][]string)
	for _, r := range all {
		if !r.got.Created {
			continue
		}
		for _, warning := range a.warnings(r.got.Session) {
			sessions[warning] = append(sessions[warning], r.spec.ID)
		}
	}
	for _, warning := range slices.Sorted(maps.Keys(sessions)) {
		ids := sessions[warning]
		a.opts.Logger.Warn().Str("session", ids[0]).Int("sessions", len(ids)).Str("warning", warning).Msg("session registered, with a warning")
	}
}
