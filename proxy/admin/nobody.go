package admin

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
)

// maxNoBody is how much is read of a body that is not expected, in bytes.
const maxNoBody = 64 << 10

// noBody refuses the body of a call that takes none, which would be without effect:
// a lease that comes with a heartbeat, say, or purge in the body of a DELETE. An
// empty object, or null, says nothing and passes.
func noBody(hctx huma.Context, next func(huma.Context)) {
	op := hctx.Operation()
	r, w := humachi.Unwrap(hctx)
	if op.RequestBody != nil || op.SkipValidateParams || r.Body == nil || r.Body == http.NoBody {
		next(hctx)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxNoBody))
	if err != nil {
		writeProblem(w, newProblem(http.StatusRequestTimeout, codeRequestTimeout, "the body could not be read"))
		return
	}
	if faults := notExpected(op, text); faults != nil {
		writeProblem(w, invalid(faults...))
		return
	}
	next(hctx)
}

func notExpected(op *huma.Operation, text []byte) []FieldError {
	if len(bytes.TrimSpace(text)) == 0 || isNull(text) {
		return nil
	}
	members, ok := object(text)
	if !ok {
		return []FieldError{{"expected none: this call takes no body", "body"}}
	}
	var faults []FieldError
	for _, name := range slices.Sorted(maps.Keys(members)) {
		message := unexpectedField
		if slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name }) {
			message = "expected in the query"
		}
		faults = append(faults, FieldError{message, "body." + name})
	}
	return faults
}
