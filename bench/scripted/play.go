package scripted

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// player sends one answer.
type player struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context
	record *Request
}

// play sends s. It panics with [http.ErrAbortHandler], as net/http wants it, when the answer ends uncleanly.
func (p *player) play(s Script) {
	if !sleep(p.ctx, s.Delay) || !pass(p.ctx, s.HoldHeader) {
		panic(http.ErrAbortHandler)
	}
	if !s.NoHeader {
		p.header(s)
		if !p.pieces(s) {
			panic(http.ErrAbortHandler)
		}
		if s.End == Clean {
			return
		}
		_ = p.rc.Flush()
	}
	p.breakOff(s.End)
}

func (p *player) header(s Script) {
	h := p.w.Header()
	maps.Copy(h, s.Header)
	switch {
	case s.Length > 0:
		h.Set("Content-Length", strconv.FormatInt(s.Length, 10))
	case s.Length == 0 && s.Cut == Whole && s.Pieces == nil:
		h.Set("Content-Length", strconv.Itoa(len(s.Body)))
	}
	status := s.Status
	if status == 0 {
		status = http.StatusOK
	}
	p.w.WriteHeader(status)
	if s.FlushHeader {
		_ = p.rc.Flush()
	}
}

// pieces writes the body and reports whether it got to its end.
func (p *player) pieces(s Script) bool {
	n := 0
	for piece := range s.pieces() {
		if n > 0 && !sleep(p.ctx, s.Gap) || !pass(p.ctx, s.Step) {
			return false
		}
		if !p.write(piece, s.Cut != Whole || s.Pieces != nil || s.Length < 0) {
			return false
		}
		if n++; n == s.Limit {
			break
		}
	}
	return true
}

func (p *player) write(piece []byte, flush bool) bool {
	n, err := p.w.Write(piece)
	p.record.addSent(n)
	if err != nil {
		p.record.noteCancel()
		return false
	}
	if !flush {
		return true
	}
	if err := p.rc.Flush(); err != nil {
		p.record.noteCancel()
		return false
	}
	return true
}

// breakOff ends an answer that is not complete.
func (p *player) breakOff(e End) {
	switch e {
	case Reset:
		p.reset()
		return
	case Hang:
		<-p.ctx.Done()
	case Clean, Abort:
	}
	panic(http.ErrAbortHandler)
}

// reset takes the connection over, which sends what was written, and closes it with an RST.
func (p *player) reset() {
	hijacked, _, err := p.rc.Hijack()
	if err != nil { // HTTP/2: the stream is reset instead
		panic(http.ErrAbortHandler)
	}
	c, ok := hijacked.(*conn)
	if !ok {
		c = &conn{Conn: hijacked}
	}
	c.reset()
}

// pieces is the body cut as the script says.
func (s Script) pieces() iter.Seq[[]byte] {
	switch {
	case s.Pieces != nil:
		return s.Pieces
	case s.Cut == Events:
		return events(s.Body)
	case s.Cut == Bytes:
		return each(s.Body)
	default:
		return whole(s.Body)
	}
}

func whole(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(body) > 0 {
			yield(body)
		}
	}
}

func each(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range body {
			if !yield(body[i : i+1]) {
				return
			}
		}
	}
}

// events divides a stream after every blank line, whatever its line ends are. What follows the last one is a piece of
// its own.
func events(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		start, line := 0, 0
		for i := 0; i < len(body); i++ {
			if body[i] != '\n' && body[i] != '\r' {
				continue
			}
			blank := i == line
			if body[i] == '\r' && i+1 < len(body) && body[i+1] == '\n' {
				i++
			}
			line = i + 1
			if blank {
				if !yield(body[start:line]) {
					return
				}
				start = line
			}
		}
		if start < len(body) {
			yield(body[start:])
		}
	}
}

// sleep waits for d and reports whether the context is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass waits for one receive from gate, nil being an open one, and reports whether the context is still alive.
func pass(ctx context.Context, gate <-chan struct{}) bool {
	if gate == nil {
		return true
	}
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}
