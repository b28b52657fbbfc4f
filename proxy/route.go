package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// A route is one canonical path of the data plane.
type route struct {
	pattern metrics.Route
	dialect dialect.Dialect // of its errors, and for calls of their bodies
	methods map[string]func(*exchange) error
}

// modelPrefix precedes a model's id, which may itself contain slashes.
const modelPrefix = "/v1/models/"

// routes is the table of the data plane. A model's path stands for all of them.
func routes() map[string]route {
	get := func(serve func(*exchange) error) map[string]func(*exchange) error {
		return map[string]func(*exchange) error{http.MethodGet: serve, http.MethodHead: serve}
	}
	post := func(serve func(*exchange) error) map[string]func(*exchange) error {
		return map[string]func(*exchange) error{http.MethodPost: serve}
	}
	chat := dialect.Chat{}
	return map[string]route{
		"/v1/chat/completions":      {metrics.RouteChat, chat, post((*exchange).call)},
		"/v1/completions":           {metrics.RouteCompletions, dialect.Completions{}, post((*exchange).call)},
		"/v1/responses":             {metrics.RouteResponses, dialect.Responses{}, post((*exchange).call)},
		"/v1/messages":              {metrics.RouteMessages, dialect.Messages{}, post((*exchange).call)},
		"/v1/messages/count_tokens": {metrics.RouteCountTokens, dialect.Messages{}, post((*exchange).passThroughModel)},
		"/v1/embeddings":            {metrics.RouteEmbeddings, chat, post((*exchange).passThrough)},
		"/v1/tokenize":              {metrics.RouteTokenize, chat, post((*exchange).passThroughModel)},
		"/v1/detokenize":            {metrics.RouteDetokenize, chat, post((*exchange).passThroughModel)},
		"/v1/models":                {metrics.RouteModels, chat, get((*exchange).models)},
		modelPrefix:                 {metrics.RouteModel, chat, get((*exchange).models)},
		"/healthz":                  {metrics.RouteHealth, chat, get(answer(http.StatusNoContent))},
		"/": {metrics.RouteRoot, chat, map[string]func(*exchange) error{
			http.MethodHead: answer(http.StatusOK), // Claude Code asks before it starts
		}},
	}
}

// UpstreamRoutes are the canonical paths of the requests that are sent on to an
// upstream, sorted.
func UpstreamRoutes() []string {
	var paths []string
	for _, route := range routes() {
		switch route.pattern {
		case metrics.RouteRoot, metrics.RouteHealth, metrics.RouteModel:
		default:
			paths = append(paths, string(route.pattern))
		}
	}
	slices.Sort(paths)
	return paths
}

// answer needs no secret and has no body.
func answer(status int) func(*exchange) error {
	return func(x *exchange) error {
		x.begin(status)
		return nil
	}
}

// find looks a request's path and method up. Even with an error the route says
// in which dialect to tell it.
func (p *Proxy) find(r *http.Request) (route, func(*exchange) error, error) {
	path := canonicalPath(r.URL.EscapedPath())
	if strings.HasPrefix(path, modelPrefix) && !climbs(r.URL.Path) {
		path = modelPrefix
	}
	found, ok := p.routes[path]
	if !ok {
		found = route{pattern: metrics.RouteOther, dialect: dialect.Chat{}}
	}
	serve, allowed := found.methods[r.Method]
	switch {
	case isWebSocket(r.Header):
		return found, nil, errUpgrade
	case !ok:
		return found, nil, &routeError{r.Method, r.URL.Path}
	case !allowed:
		return found, nil, &methodError{allow: strings.Join(slices.Sorted(maps.Keys(found.methods)), ", ")}
	}
	return found, serve, nil
}

// climbs says whether a path, unescaped, has a segment by which a server behind
// could find out of the path's folder: a model's id goes up as it was written.
func climbs(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

func isWebSocket(h http.Header) bool {
	return strings.EqualFold(h.Get("Upgrade"), "websocket") && connectionNames(h, "Upgrade")
}

// canonicalPath brings a path, still escaped, to the form that routes are
// named by. Clients are told a base URL with /v1 and add their own, or neither,
// and join with too many slashes.
func canonicalPath(path string) string {
	var b strings.Builder
	b.Grow(len("/v1") + len(path))
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "", segment == "v1" && b.Len() == 0:
			continue
		case b.Len() == 0 && segment != "healthz":
			b.WriteString("/v1")
		}
		b.WriteString("/")
		b.WriteString(segment)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
