package admin

import (
	"embed"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// assets are the page and its script. They come from the binary: the page works
// without a network.
//
//go:embed assets/docs.html assets/rapidoc-min.js
var assets embed.FS

// contentPolicy lets the page load what this listener serves and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; " +
	"font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func registerPage(r chi.Router) {
	r.Get("/docs", serveAsset("assets/docs.html", "text/html; charset=utf-8"))
	r.Get("/docs/rapidoc-min.js", serveAsset("assets/rapidoc-min.js", "text/javascript; charset=utf-8"))
}

func serveAsset(name, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", contentPolicy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeFileFS(w, r, assets, name)
	}
}
