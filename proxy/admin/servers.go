package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

func (a *API) registerServerRoutes() {
	route(a, huma.Operation{
		OperationID: "list-servers", Method: http.MethodGet, Path: "/servers", Tags: []string{tagServers},
		Summary: "List the servers of the pool, the oldest first",
	}, a.listServers)
	route(a, huma.Operation{
		OperationID: "drain-server", Method: http.MethodPost, Path: "/servers/{id}/drain", Tags: []string{tagServers},
		Summary:     "Place no more sessions on a server",
		Description: "Its sessions go on; it is closed when the last of them has ended.",
		Errors:      []int{http.StatusNotFound},
	}, a.drainServer)
}

// stateDraining is the state of a server that waits for its last session.
const stateDraining = "draining"

// ServerStates lists the states of a server.
func ServerStates() []string {
	return []string{"opening", "probing", "ready", "failing", stateDraining, "lost"}
}

// server is a server as it is listed.
type server struct {
	ID         string    `json:"id" example:"srv-3"`
	State      string    `json:"state" enum:"opening,probing,ready,failing,draining,lost" doc:"Sessions are placed only on one that is ready: its public URL has led back to it."`
	Driver     string    `json:"driver" doc:"How it is made reachable." example:"frp"`
	Endpoint   *string   `json:"endpoint" doc:"Its public base URL; null while it has none." example:"https://abc.example.net"`
	Load       int       `json:"load" doc:"Sessions placed on it."`
	Capacity   *int      `json:"capacity" doc:"Sessions that it takes; null is no cap."`
	CreatedAt  time.Time `json:"created_at"`
	AgeSeconds float64   `json:"age_seconds"`
	LastError  *string   `json:"last_error" doc:"Of its tunnel and its probes; null while all is well."`
}

func serverOf(s Server) server {
	return server{
		ID: s.ID, State: s.State, Driver: s.Driver, Endpoint: orNull(s.URL), Load: s.Load, Capacity: orNull(s.Capacity),
		CreatedAt: s.CreatedAt, AgeSeconds: time.Since(s.CreatedAt).Seconds(), LastError: orNull(s.LastError),
	}
}

type serverList struct {
	Servers []server `json:"servers" nullable:"false"`
}

func (a *API) listServers(context.Context, *struct{}) (*answer[serverList], error) {
	list := serverList{Servers: []server{}}
	for _, s := range a.opts.Pool.Servers() {
		list.Servers = append(list.Servers, serverOf(s))
	}
	return ok200(list), nil
}

// ServerPath names one server by its path; exported like [SessionPath].
type ServerPath struct {
	ID string `path:"id" doc:"The server's id." example:"srv-3"`
}

func (a *API) drainServer(_ context.Context, in *ServerPath) (*answer[server], error) {
	before, ok := a.findServer(in.ID)
	if !ok {
		return nil, noServer()
	}
	if err := a.opts.Pool.Drain(in.ID); errors.Is(err, ErrNoServer) {
		return nil, noServer()
	} else if err != nil {
		return nil, err
	}
	a.opts.Logger.Info().Str("server", in.ID).Int("sessions", before.Load).Msg("server is drained")
	if after, there := a.findServer(in.ID); there {
		return ok200(serverOf(after)), nil
	}
	before.State, before.Load = stateDraining, 0 // it was empty and has gone
	return ok200(serverOf(before)), nil
}

func (a *API) findServer(id string) (Server, bool) {
	all := a.opts.Pool.Servers()
	at := slices.IndexFunc(all, func(s Server) bool { return s.ID == id })
	if at < 0 {
		return Server{}, false
	}
	return all[at], true
}

func noServer() *Problem {
	return newProblem(http.StatusNotFound, codeNotFound, "no such server")
}
