package admin

import (
	"fmt"
	"maps"
	"slices"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// warnings name the settings of a session that are without effect, as its upstream
// is now or as its harness has made its calls. They are no errors: an upstream can
// be replaced at any time, and what it refuses, or in which format the harness
// calls, is known only afterwards. An ended session has none.
func (a *API) warnings(s *registry.Session) []string {
	settings := s.Settings()
	u, ok := a.opts.Upstreams.Get(settings.Upstream)
	switch {
	case s.State() == registry.StateEnded:
		return []string{}
	case !ok:
		return []string{"upstream: there is no upstream " + settings.Upstream + "; calls fail until there is"}
	}
	w := warner{session: s, settings: settings, upstream: u, refused: dialect.AddedOf(u.Refused()), found: []string{}}
	w.tokenIDs()
	w.logprobs()
	w.tokenLimits()
	w.user()
	return w.found
}

// A warner collects the warnings of one session.
type warner struct {
	session  *registry.Session
	settings *registry.Settings
	upstream *upstream.Upstream
	refused  dialect.Added // by the upstream
	found    []string
}

func (w *warner) add(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *warner) tokenIDs() {
	engine := dialect.EngineOf(string(w.upstream.Style()))
	_, asked := w.settings.Sampling["return_token_ids"]
	switch {
	case !w.settings.Capture.TokenIDs || asked:
		return
	case engine == dialect.NoEngine:
		w.add("capture.token_ids: none are asked for, because the style of upstream %s is %s; expected vllm or sglang", w.upstream.Name(), w.upstream.Style())
		return
	case w.refused.TokenIDs:
		w.add("capture.token_ids: none are asked for, because upstream %s has refused a request that did", w.upstream.Name())
	}
	without := w.session.Count(func(t *registry.Turn) bool {
		return !ofChoices(t) || engine == dialect.SGLang && ofChat(t) && t.Stream
	})
	if without > 0 {
		w.add("capture.token_ids: %d turns have none: they are asked for in chat and completions, and of SGLang not in a stream of chat", without)
	}
}

func (w *warner) logprobs() {
	if !w.settings.Capture.Logprobs {
		return
	}
	if w.refused.Logprobs {
		w.add("capture.logprobs: none are asked for, because upstream %s has refused a request that did", w.upstream.Name())
	}
	if without := w.session.Count(func(t *registry.Turn) bool { return !ofChoices(t) }); without > 0 {
		w.add("capture.logprobs: %d turns have none: they are asked for in chat and completions", without)
	}
}

func (w *warner) tokenLimits() {
	if !w.settings.HasTokenLimit {
		return
	}
	switch uncounted := w.session.Count(func(t *registry.Turn) bool { return t.Usage == nil }); {
	case uncounted > 0:
		w.add("limits: the tokens of %d turns are not counted, because their upstream has said nothing of their usage", uncounted)
	case !w.upstream.AsksUsage() || w.refused.Usage:
		w.add("limits: the tokens of a stream are counted only if the harness asks for them, because upstream %s is not asked for usage", w.upstream.Name())
	}
}

func (w *warner) user() {
	if w.settings.User == nil {
		return
	}
	if without := w.session.Count(func(t *registry.Turn) bool { return !ofChat(t) }); without > 0 {
		w.add("user: %d turns went without it: a simulated user takes part in chat", without)
	}
}

// ofChoices reports whether a turn is of a format in which tokens are asked for.
func ofChoices(t *registry.Turn) bool {
	return ofChat(t) || t.Dialect == dialect.Completions{}.Name()
}

func ofChat(t *registry.Turn) bool { return t.Dialect == dialect.Chat{}.Name() }

// LogWarnings logs each warning of these sessions once for all of them.
func (a *API) LogWarnings(sessions []*registry.Session) {
	ids := make(map[string][]string)
	for _, s := range sessions {
		for _, warning := range a.warnings(s) {
			ids[warning] = append(ids[warning], s.ID())
		}
	}
	for _, warning := range slices.Sorted(maps.Keys(ids)) {
		a.opts.Logger.Warn().Str("session", ids[warning][0]).Int("sessions", len(ids[warning])).Str("warning", warning).Msg("sessions with a warning")
	}
}
