package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// authenticate lets a request pass that carries the admin token. It stands
// before the router, so that without the token every path, known or not,
// answers the same 401.
func (a *API) authenticate(next http.Handler) http.Handler {
	if a.opts.Token == "" {
		return next
	}
	want := sha256.Sum256([]byte(a.opts.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Hashing first makes the comparison independent of the length.
		got := sha256.Sum256([]byte(credential(r)))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 || a.open(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Add("WWW-Authenticate", `Bearer realm="muxproxy"`)
		if documentation(r) {
			w.Header().Add("WWW-Authenticate", `Basic realm="muxproxy: any user, the admin token as password", charset="UTF-8"`)
		}
		writeProblem(w, newProblem(http.StatusUnauthorized, codeUnauthorized, "send the admin token as Authorization: Bearer"))
	})
}

// open reports a path that needs no token.
func (a *API) open(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		return true
	case "/metrics":
		return !a.opts.MetricsAuth
	}
	return false
}

// documentation reports the pages made for a browser. Only there a browser's
// own password dialogue is accepted in place of a bearer: on the calls that
// change something it would let other sites use the browser's memory of it.
func documentation(r *http.Request) bool {
	return r.Method == http.MethodGet &&
		(r.URL.Path == "/docs" || strings.HasPrefix(r.URL.Path, "/docs/") || strings.HasPrefix(r.URL.Path, "/openapi."))
}

func credential(r *http.Request) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(rest)
	}
	if documentation(r) {
		if _, password, ok := r.BasicAuth(); ok {
			return password
		}
	}
	return ""
}
