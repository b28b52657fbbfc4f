package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/http/pprof"
	"strings"
)

// withPprof serves Go's profiles under /debug/pprof/ beside the admin API, for
// who has the admin token.
func withPprof(api http.Handler, token Secret) http.Handler {
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Everybody else gets what the API answers to an unknown path.
		if strings.HasPrefix(r.URL.Path, "/debug/pprof/") && hasToken(r, token) {
			profiles.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// hasToken compares hashes, so that the time it takes tells nothing.
func hasToken(r *http.Request, token Secret) bool {
	if token == "" {
		return true
	}
	scheme, credential, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got, want := sha256.Sum256([]byte(strings.TrimSpace(credential))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
