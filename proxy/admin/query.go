package admin

import (
	"net/url"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
)

// onlyOnce refuses a query that gives a parameter of one value more than once,
// where huma would take the first, or that cannot be read, where net/url would
// drop a part.
func onlyOnce(hctx huma.Context, next func(huma.Context)) {
	if hctx.Operation().SkipValidateParams {
		next(hctx)
		return
	}
	u := hctx.URL()
	query, err := url.ParseQuery(u.RawQuery)
	var faults []FieldError
	if err != nil {
		faults = append(faults, FieldError{"expected name=value pairs joined by &, with %XX escapes", "query"})
	}
	for _, p := range hctx.Operation().Parameters {
		if p.In == "query" && p.Schema.Type != huma.TypeArray && len(query[p.Name]) > 1 {
			faults = append(faults, FieldError{"expected only once", "query." + p.Name})
		}
	}
	if len(faults) > 0 {
		_, w := humachi.Unwrap(hctx)
		writeProblem(w, invalid(faults...))
		return
	}
	next(hctx)
}
