package admin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/muxproxy/muxproxy/registry"
)

// ndjson is newline-delimited JSON, one value a line.
const ndjson = "application/x-ndjson"

// traceWriter writes traces turn by turn. In memory there is one turn at a time
// as text, however long the trace: a trace as text is longer than as it is kept,
// because each request repeats the conversation.
type traceWriter struct {
	out   *bufio.Writer
	flush func() error
	lines bool // one value a line
	buf   []byte
}

// writeTraces answers with what write writes. An answer that breaks off is not
// ended cleanly.
func (a *API) writeTraces(hctx huma.Context, contentType string, write func(*traceWriter) error) {
	_, w := humachi.Unwrap(hctx)
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	conn := &patientWriter{w: w, ResponseController: http.NewResponseController(w)}
	out := bufio.NewWriterSize(conn, 64<<10)
	tw := &traceWriter{out: out, lines: contentType == ndjson}
	tw.flush = func() error {
		if err := out.Flush(); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
		if err := conn.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("flush trace: %w", err)
		}
		return nil
	}
	err := write(tw)
	if err == nil {
		err = tw.flush()
	}
	if err != nil {
		if hctx.Context().Err() == nil {
			a.opts.Logger.Warn().Err(err).Msg("answering with a trace broke off")
		}
		panic(http.ErrAbortHandler)
	}
}

// WriteTrace writes a session's trace as one line, like a line of POST /traces/query. The error is the writer's, or that of reading the trace.
func WriteTrace(w io.Writer, s *registry.Session) error {
	t, err := s.Trace()
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	tw := &traceWriter{out: out, flush: out.Flush, lines: true}
	return tw.trace(s, t)
}

// trace writes a session's whole trace as one value.
func (w *traceWriter) trace(s *registry.Session, t registry.Trace) error {
	if err := w.head(summaryOf(t.Summary), new(settingsOf(s))); err != nil {
		return err
	}
	w.text(`,"turns":[`)
	for i, turn := range t.Turns {
		w.comma(i)
		if err := w.turn(t.Turns, turn); err != nil {
			return err
		}
	}
	w.text(`],"failed_calls":[`)
	for i, call := range t.FailedCalls {
		w.comma(i)
		if err := w.failedCall(call); err != nil {
			return err
		}
	}
	w.text(fmt.Sprintf(`],"failed_calls_total":%d}`, t.FailedTotal))
	return w.end()
}

// turns writes the turns alone, one a line.
func (w *traceWriter) turns(t registry.Trace) error {
	for _, turn := range t.Turns {
		if err := w.turn(t.Turns, turn); err != nil {
			return err
		}
		w.text("\n")
	}
	return nil
}

// gone writes the trace of a session of which only the summary is left.
func (w *traceWriter) gone(s Summary) error {
	if err := w.head(s, nil); err != nil {
		return err
	}
	w.text(`,"turns":null,"failed_calls":null,"failed_calls_total":0}`)
	return w.end()
}

// unknown writes a line for each id that no session has.
func (w *traceWriter) unknown(ids []string) error {
	for _, id := range ids {
		p := newProblem(http.StatusNotFound, codeNotFound, "no such session")
		raw, err := encode(traceLine{ID: id, Error: p})
		if err != nil {
			return fmt.Errorf("encode problem: %w", err)
		}
		w.text(string(raw))
		if err := w.end(); err != nil {
			return err
		}
	}
	return nil
}

func (w *traceWriter) head(s Summary, rules *Settings) error {
	raw, err := encode(struct {
		ID       string    `json:"id"`
		Session  Summary   `json:"session"`
		Settings *Settings `json:"settings"`
	}{s.ID, s, rules})
	if err != nil {
		return fmt.Errorf("encode summary and settings: %w", err)
	}
	w.text(string(raw[:len(raw)-1]))
	return nil
}

func (w *traceWriter) turn(turns []*registry.Turn, t *registry.Turn) error {
	raw, err := appendTurn(w.buf[:0], t, func(index int) (*registry.Turn, error) {
		if index >= len(turns) {
			return nil, registry.ErrNotFound
		}
		return turns[index], nil
	})
	if err != nil {
		return fmt.Errorf("encode turn %d: %w", t.Index, err)
	}
	return w.value(raw)
}

func (w *traceWriter) failedCall(f *registry.FailedCall) error {
	raw, err := appendFailedCall(w.buf[:0], f)
	if err != nil {
		return fmt.Errorf("encode failed call: %w", err)
	}
	return w.value(raw)
}

// value writes one JSON text. In a line its line breaks, which JSON has between
// tokens only, become spaces.
func (w *traceWriter) value(raw []byte) error {
	w.buf = raw
	if w.lines {
		for i := bytes.IndexAny(raw, "\r\n"); i >= 0; i = bytes.IndexAny(raw, "\r\n") {
			raw[i] = ' '
			raw = raw[i:]
		}
	}
	if _, err := w.out.Write(w.buf); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// text writes what is not a session's. An error stays in the bufio.Writer and
// comes back with the next value or at the end.
func (w *traceWriter) text(s string) { _, _ = w.out.WriteString(s) }

func (w *traceWriter) comma(i int) {
	if i > 0 {
		w.text(",")
	}
}

// end ends one trace, and sends it on its way.
func (w *traceWriter) end() error {
	w.text("\n")
	return w.flush()
}
