package admin

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

// Selection names many sessions: by ids, or by labels that all must match. It is
// exported because it is embedded in bodies, see [SessionPath].
type Selection struct {
	IDs    []string          `json:"ids,omitempty" minItems:"1" maxItems:"10000" nullable:"false" doc:"The sessions' ids."`
	Labels map[string]string `json:"labels,omitempty" minProperties:"1" doc:"Labels that the sessions have."`
}

// Resolve refuses a selection that names nothing, which could be meant as
// everything.
func (s *Selection) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if (len(s.IDs) == 0) == (len(s.Labels) == 0) {
		return []error{FieldError{"expected either ids or labels", at.String()}}
	}
	return nil
}

// Unknown are ids that no session has. It is exported like [Selection].
type Unknown struct {
	Unknown []string `json:"unknown" nullable:"false" doc:"Ids that no session has."`
}

// selected lists each id once, in the order given; labels select those of sessions
// that are kept.
func (a *API) selected(s Selection) []string {
	if len(s.Labels) > 0 {
		sessions := a.opts.Registry.Select(s.Labels)
		ids := make([]string, 0, len(sessions))
		for _, session := range sessions {
			ids = append(ids, session.ID())
		}
		return ids
	}
	ids := make([]string, 0, len(s.IDs))
	seen := make(map[string]bool, len(s.IDs))
	for _, id := range s.IDs {
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	return ids
}

// live finds the sessions of a selection that have not ended.
func (a *API) live(s Selection) (sessions []*registry.Session, unknown, ended []string) {
	unknown, ended = []string{}, []string{}
	for _, id := range a.selected(s) {
		session, err := a.opts.Registry.Get(id)
		switch {
		case err != nil:
			unknown = append(unknown, id)
		case session.State() == registry.StateEnded:
			ended = append(ended, id)
		default:
			sessions = append(sessions, session)
		}
	}
	return sessions, unknown, ended
}
