package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muxproxy/muxproxy/registry"
)

// patchSession is the operation whose faults [explainFixed] explains.
const patchSession = "patch-session"

func (a *API) registerSessionRoutes() {
	route(a, huma.Operation{
		OperationID: "register-session", Method: http.MethodPost, Path: "/sessions", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleSession),
		Summary:     "Register a rollout",
		Description: "201 with the secret, which is shown nowhere else. 200 repeats an earlier registration of the same id, secret and body. A session whose answer could not be written is undone.",
		Responses:   jsonResponses[registered](a.huma, http.StatusCreated, http.StatusOK),
		Errors:      []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, a.registerSession)
	route(a, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/sessions", Tags: []string{tagSessions},
		Summary: "List sessions, newest first",
	}, a.listSessions)
	route(a, huma.Operation{
		OperationID: "get-session", Method: http.MethodGet, Path: "/sessions/{id}", Tags: []string{tagSessions},
		Summary: "Get a session's summary", Errors: []int{http.StatusNotFound},
	}, a.getSession)
	route(a, huma.Operation{
		OperationID: patchSession, Method: http.MethodPatch, Path: "/sessions/{id}", Tags: []string{tagSessions},
		RequestBody: bodyLike(mergePatchBody, examplePatch),
		Summary:     "Change a session",
		Description: "A JSON merge patch (RFC 7386): null removes. For calls admitted afterwards; a stopped session stays stopped. Renews the lease. The other fields that a session is registered with are fixed.",
		Errors:      []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone},
	}, a.patchSession)
	route(a, huma.Operation{
		OperationID: "rotate-secret", Method: http.MethodPost, Path: "/sessions/{id}/rotate", Tags: []string{tagSessions},
		Summary: "Give a session a new secret", Description: "The old one ends at once.",
		Errors: []int{http.StatusNotFound, http.StatusGone},
	}, a.rotateSecret)
}

// registered is a session with its secret.
type registered struct {
	ID        string         `json:"id"`
	Secret    string         `json:"secret" doc:"The harness's API key. Shown only here."`
	State     registry.State `json:"state" enum:"active,stopped,ended"`
	Server    string         `json:"server"`
	Endpoint  endpoint       `json:"endpoint"`
	Env       environment    `json:"env" doc:"What to put into the harness's environment."`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt *time.Time     `json:"expires_at" doc:"When the lease runs out if nothing renews it."`
	Warnings  []string       `json:"warnings" nullable:"false" doc:"Settings that have no effect as the session's upstream is now or as its harness calls, and why: token ids that are captured of an upstream of style openai, say."`
}

// environment holds the variables that OpenAI and Anthropic clients read.
type environment struct {
	OpenAIBaseURL    string `json:"OPENAI_BASE_URL"`
	OpenAIAPIBase    string `json:"OPENAI_API_BASE"`
	OpenAIAPIKey     string `json:"OPENAI_API_KEY"`
	AnthropicBaseURL string `json:"ANTHROPIC_BASE_URL"`
	AnthropicAPIKey  string `json:"ANTHROPIC_API_KEY"`
}

func (a *API) registeredOf(s *registry.Session, secret string) registered {
	sum := s.Summary()
	e := endpointOf(sum.Placement)
	return registered{
		ID: sum.ID, Secret: secret, State: sum.State, Server: sum.Placement.Server, Endpoint: e,
		Env: environment{
			OpenAIBaseURL: e.OpenAIBaseURL, OpenAIAPIBase: e.OpenAIBaseURL, OpenAIAPIKey: secret,
			AnthropicBaseURL: e.AnthropicBaseURL, AnthropicAPIKey: secret,
		},
		CreatedAt: sum.CreatedAt, ExpiresAt: orNull(sum.ExpiresAt), Warnings: a.warnings(s),
	}
}

type registerInput struct {
	Body *newSession `doc:"Every field is optional, and so is the body."`
}

func (a *API) registerSession(ctx context.Context, in *registerInput) (*writer, error) {
	body := in.Body
	if body == nil {
		body = &newSession{}
	}
	show := func(all []*registration) any { return a.shownOf(all[0]) }
	return a.registering(ctx, []*newSession{body}, a.registerAll, show), nil
}

func (a *API) shownOf(r *registration) registered {
	return a.registeredOf(r.got.Session, r.got.Secret)
}

type listInput struct {
	State         string   `query:"state" enum:"active,stopped,ended" doc:"Only sessions in this state."`
	Label         []string `query:"label,explode" nullable:"false" doc:"key:value; given more than once, all must match."`
	StopCondition string   `query:"stop_condition" doc:"Only sessions that this condition stopped."`
	Limit         int      `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most." example:"50"`
	Cursor        string   `query:"cursor" doc:"next_cursor of the page before."`
}

type sessionList struct {
	Sessions   []Summary `json:"sessions" nullable:"false"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Asks for the next page; absent on the last one."`
}

func (a *API) listSessions(_ context.Context, in *listInput) (*answer[sessionList], error) {
	filter := registry.Filter{
		State: registry.State(in.State), StopCondition: in.StopCondition, Limit: in.Limit, Cursor: in.Cursor,
		Labels: make(map[string]string, len(in.Label)),
	}
	for _, label := range in.Label {
		key, value, ok := strings.Cut(label, ":")
		if !ok || key == "" {
			return nil, invalid(FieldError{Message: "expected key:value", Location: "query.label"})
		}
		if other, twice := filter.Labels[key]; twice && other != value {
			return ok200(sessionList{Sessions: []Summary{}}), nil
		}
		filter.Labels[key] = value
	}
	page, next, err := a.opts.Registry.List(filter)
	if err != nil {
		return nil, inQuery(err)
	}
	list := sessionList{Sessions: make([]Summary, 0, len(page)), NextCursor: next}
	for _, s := range page {
		list.Sessions = append(list.Sessions, summaryOf(s.Summary()))
	}
	return ok200(list), nil
}

// SessionPath names one session by its path. It is exported because huma looks for
// parameters in exported fields only, and embedded fields are named after their type.
type SessionPath struct {
	ID string `path:"id" doc:"The session's id." example:"gsm8k-0042-a"`
}

func (a *API) getSession(_ context.Context, in *SessionPath) (*answer[session], error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	return ok200(a.sessionOf(s)), nil
}

func (a *API) rotateSecret(_ context.Context, in *SessionPath) (*answer[registered], error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	secret, err := s.Rotate()
	if err != nil {
		return nil, err
	}
	return ok200(a.registeredOf(s, secret)), nil
}

// inQuery is the problem of a filter, whose fields are query parameters.
func inQuery(err error) error {
	if e, ok := errors.AsType[*registry.InvalidError](err); ok {
		return invalid(FieldError{e.Message, "query." + e.Field})
	}
	return err
}
