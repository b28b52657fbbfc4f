package admin

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

func (a *API) registerStopRoutes() {
	route(a, huma.Operation{
		OperationID: "stop-session", Method: http.MethodPost, Path: "/sessions/{id}/stop", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleStop),
		Summary:     "Let a session take no more turns",
		Description: "It keeps its slot until it is ended. The first reason is kept.",
		Errors:      []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone},
	}, a.stopSession)
	route(a, huma.Operation{
		OperationID: "stop-many", Method: http.MethodPost, Path: "/sessions/stop", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleStopMany),
		Summary:     "Let many sessions take no more turns", Errors: []int{http.StatusBadRequest},
	}, a.stopMany)
}

// Stop says how to stop. It is exported because it is embedded, see [SessionPath].
type Stop struct {
	Reason string `json:"reason,omitempty" minLength:"1" maxLength:"256" pattern:"^[^\\x00-\\x1F\\x7F-\\x9F]*$" doc:"What the session's stop_condition will say: text without control characters; admin_stop when absent."`
	Cancel bool   `json:"cancel,omitempty" doc:"Cancel calls in flight too."`
}

type stopInput struct {
	SessionPath
	Body *Stop
}

func (a *API) stopSession(_ context.Context, in *stopInput) (*answer[session], error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	how := Stop{}
	if in.Body != nil {
		how = *in.Body
	}
	if err := s.Stop(how.Reason, how.Cancel); err != nil {
		return nil, err
	}
	return ok200(a.sessionOf(s)), nil
}

type stopManyInput struct {
	Body manyToStop
}

type manyToStop struct {
	Selection
	Stop
}

type stopped struct {
	Sessions []Summary `json:"sessions" nullable:"false" doc:"The sessions, stopped now if they were not before."`
	Unknown
	Ended []string `json:"ended" nullable:"false" doc:"Ids of sessions that have ended."`
}

func (a *API) stopMany(_ context.Context, in *stopManyInput) (*answer[stopped], error) {
	sessions, unknown, ended := a.live(in.Body.Selection)
	out := stopped{Sessions: make([]Summary, 0, len(sessions)), Unknown: Unknown{unknown}, Ended: ended}
	for _, s := range sessions {
		if err := s.Stop(in.Body.Reason, in.Body.Cancel); err != nil { // it has ended meanwhile
			out.Ended = append(out.Ended, s.ID())
			continue
		}
		out.Sessions = append(out.Sessions, summaryOf(s.Summary()))
	}
	return ok200(out), nil
}
