package admin

import (
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
)

// record logs each request in one line, by the pattern of its route, and turns
// a panic into a 500, or into a broken connection once the answer has begun.
func (a *API) record(routes chi.Routes, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rctx := chi.NewRouteContext()
		rctx.Routes = routes
		r = r.WithContext(withRoute(r.Context(), rctx))
		sw := &statusWriter{ResponseWriter: w, head: r.Method == http.MethodHead}
		defer func() {
			fault := recover()
			if fault != nil && sw.status == 0 {
				writeProblem(sw, newProblem(http.StatusInternalServerError, codeInternal, "internal error"))
			} else if fault != nil {
				defer panic(http.ErrAbortHandler)
			}
			level := zerolog.DebugLevel
			if ours(r, fault) {
				level = zerolog.ErrorLevel
				a.opts.Logger.Error().Any("panic", fault).Bytes("stack", debug.Stack()).Msg("admin request panicked")
			}
			a.opts.Logger.WithLevel(level).
				Str("method", r.Method).Str("route", rctx.RoutePattern()).Int("status", sw.status).
				Float64("seconds", time.Since(start).Seconds()).Msg("admin request")
		}()
		next.ServeHTTP(sw, r)
	})
}

// ours reports a fault of the daemon. A client that leaves in the middle of its
// answer is none.
func ours(r *http.Request, fault any) bool {
	err, _ := fault.(error)
	return fault != nil && !errors.Is(err, http.ErrAbortHandler) && r.Context().Err() == nil
}

// statusWriter remembers the status of an answer, and keeps the body of an
// answer to HEAD from net/http, which would refuse it with an error.
type statusWriter struct {
	http.ResponseWriter
	status int
	head   bool
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.head {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController the way to flushing and deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
