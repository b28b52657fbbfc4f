package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

func (a *API) registerLeaseRoutes() {
	route(a, huma.Operation{
		OperationID: "heartbeat", Method: http.MethodPost, Path: "/sessions/{id}/heartbeat", Tags: []string{tagSessions},
		Summary: "Renew a session's lease", Errors: []int{http.StatusNotFound, http.StatusGone},
	}, a.heartbeat)
	route(a, huma.Operation{
		OperationID: "heartbeat-many", Method: http.MethodPost, Path: "/sessions/heartbeat", Tags: []string{tagSessions},
		RequestBody: bodyLike(jsonBody, exampleIDs),
		Summary:     "Renew the leases of many sessions", Description: "Names the ids that no session has, and those of ended sessions.",
		Errors: []int{http.StatusBadRequest},
	}, a.heartbeatMany)
}

type lease struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a *API) heartbeat(_ context.Context, in *SessionPath) (*answer[lease], error) {
	s, err := a.opts.Registry.Get(in.ID)
	if err != nil {
		return nil, err
	}
	expires, err := s.Renew()
	if err != nil {
		return nil, err
	}
	return ok200(lease{ID: s.ID(), ExpiresAt: expires}), nil
}

type heartbeatInput struct {
	Body Selection
}

type leases struct {
	Sessions []lease `json:"sessions" nullable:"false" doc:"The leases that were renewed."`
	Unknown
	Ended []string `json:"ended" nullable:"false" doc:"Ids of sessions that have ended."`
}

func (a *API) heartbeatMany(_ context.Context, in *heartbeatInput) (*answer[leases], error) {
	sessions, unknown, ended := a.live(in.Body)
	out := leases{Sessions: make([]lease, 0, len(sessions)), Unknown: Unknown{unknown}, Ended: ended}
	for _, s := range sessions {
		expires, err := s.Renew()
		if err != nil { // it has ended meanwhile
			out.Ended = append(out.Ended, s.ID())
			continue
		}
		out.Sessions = append(out.Sessions, lease{ID: s.ID(), ExpiresAt: expires})
	}
	return ok200(out), nil
}
