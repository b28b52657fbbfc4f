package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// modelError is a model that a session with a model of its own does not have.
type modelError struct{ model string }

func (e *modelError) Error() string { return fmt.Sprintf("the model %.100q does not exist", e.model) }

// models serves GET /v1/models and GET /v1/models/{id}. A session that has a
// model sees that one alone, since whatever the harness names becomes it;
// other sessions see what the upstream serves. Neither is recorded.
func (x *exchange) models() error {
	session, err := x.authenticate()
	if err != nil {
		return err
	}
	if x.holdsSecret(x.request.URL.Path) {
		return &routeError{} // the path would go up, and into the log
	}
	settings := session.Settings()
	if settings.Model == "" {
		return x.forward(session, canonicalPath(x.request.URL.EscapedPath()), nil)
	}
	x.writer.Header().Set("Content-Type", "application/json")
	model := modelObject(settings.Model)
	if x.route == metrics.RouteModels {
		model = append(append([]byte(`{"object":"list","data":[`), model...), "]}"...)
	} else if asked := x.modelAsked(); asked != strings.Trim(settings.Model, "/") {
		return &modelError{asked}
	}
	x.deliver(http.StatusOK, model)
	return nil
}

// modelAsked is the id at the end of the path, unescaped by net/http.
func (x *exchange) modelAsked() string {
	_, id, _ := strings.Cut(x.request.URL.Path, "models/")
	return strings.Trim(id, "/")
}

// modelObject is a model as the OpenAI API lists it.
func modelObject(id string) []byte {
	b := rawjson.Quote([]byte(`{"id":`), id)
	return append(b, `,"object":"model","created":0,"owned_by":"muxproxy"}`...)
}
