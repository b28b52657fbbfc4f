package proxy

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/registry"
)

// hookSession is the session as a hook is told it.
type hookSession struct {
	ID       string            `json:"id"`
	Labels   map[string]string `json:"labels"`
	Metadata json.RawMessage   `json:"metadata"`
}

func hookSessionOf(s *registry.Session) hookSession {
	spec := s.Spec()
	told := hookSession{ID: s.ID(), Labels: spec.Labels, Metadata: spec.Metadata}
	if told.Labels == nil {
		told.Labels = map[string]string{}
	}
	return told
}

// stopQuestion is what the URL of a stop condition is asked after a turn.
type stopQuestion struct {
	Session   hookSession `json:"session"`
	Condition string      `json:"condition"`
	Turn      hookTurn    `json:"turn"`
}

type hookTurn struct {
	Index    int             `json:"index"`
	Dialect  string          `json:"dialect"`
	Model    string          `json:"model"`
	Request  json.RawMessage `json:"request"`  // as it went upstream
	Response json.RawMessage `json:"response"` // a stream as the response it amounts to
}

// stopAnswer is what it answers. Stop must be there: an answer of another shape
// would otherwise pass for a no.
type stopAnswer struct {
	Stop *bool `json:"stop"`
}

func (a *stopAnswer) check() error {
	if a.Stop == nil {
		return errors.New(`its answer has no "stop" that is true or false`)
	}
	return nil
}

// hookAnswer is what a hook answers. check says why it is of no use.
type hookAnswer interface{ check() error }

// askStopHooks asks about a turn that was just committed, so that its answer takes
// effect before the harness can make its next call. Whether the client is still
// there does not matter. What cannot be asked is asked again then.
func (c *call) askStopHooks(turn *registry.Turn) {
	if len(c.admitted.Settings().StopHooks) == 0 || c.session.State() != registry.StateActive {
		return
	}
	if err := c.proxy.askStopHooks(c.session.Life(), c.session, c.admitted.Settings(), turn); err != nil {
		c.proxy.options.Logger.Warn().Err(err).Str("session", c.session.ID()).Int("turn", turn.Index).Msg("hook failed; it is asked again before the next call")
		c.session.AskLater(turn)
	}
}

// askAgain asks about the turns whose hooks have failed. Until they answer the
// session makes no calls: it could be past its end.
func (x *exchange) askAgain(ctx context.Context, session *registry.Session) error {
	settings := session.Settings()
	if len(settings.StopHooks) == 0 {
		return nil
	}
	var failed error
	for _, turn := range session.TakeUndecided() {
		if failed == nil {
			failed = x.proxy.askStopHooks(ctx, session, settings, turn)
		}
		if failed != nil {
			session.AskLater(turn)
		}
	}
	return failed
}

// askStopHooks stops the session under the first condition that says so.
func (p *Proxy) askStopHooks(ctx context.Context, session *registry.Session, settings *registry.Settings, turn *registry.Turn) error {
	response, err := assembled(turn)
	if err != nil {
		return err
	}
	question := stopQuestion{Session: hookSessionOf(session), Turn: hookTurn{
		Index: turn.Index, Dialect: turn.Dialect, Model: turn.Model, Request: turn.Request(), Response: response,
	}}
	for _, condition := range settings.StopHooks {
		question.Condition = condition.Name
		var answer stopAnswer
		if err := p.askHook(ctx, session, condition.Name, condition.Hook, question, &answer); err != nil {
			return err
		}
		if *answer.Stop {
			// The session may have ended meanwhile, which stops it even better.
			_ = session.Stop(condition.Name, false)
			return nil
		}
	}
	return nil
}

// askHook asks a hook of the session's: that of the stop condition of this name, or
// the user's when it is empty. The session shows how that went. The error is a
// [hook.Error].
func (p *Proxy) askHook(ctx context.Context, session *registry.Session, condition string, h *registry.Hook, question any, answer hookAnswer) error {
	name := "user"
	if condition != "" {
		name = "stop condition " + condition
	}
	err := p.options.Hooks.Post(ctx, name, h.URL, h.Budget(), question, answer)
	if err == nil {
		if cause := answer.check(); cause != nil {
			err = &hook.Error{Hook: name, Cause: cause}
		}
	}
	if err == nil || ctx.Err() == nil { // or nobody has waited for the answer
		session.HookAsked(condition, errors.Unwrap(err))
	}
	return err
}

// assembled is a turn's response as JSON.
func assembled(turn *registry.Turn) ([]byte, error) {
	if !turn.Stream {
		return turn.Response(), nil
	}
	d, _ := dialect.ByName(turn.Dialect)
	return d.Assemble(turn.Response())
}
