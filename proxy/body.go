package proxy

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// readBody reads the request's whole body, decoded. Its place among the bytes in
// flight, x.held, is given back by whoever needs the body last.
func (x *exchange) readBody(ctx context.Context) (body []byte, err error) {
	gzipped, err := isGzip(x.request.Header)
	if err != nil {
		return nil, err
	}
	limit := x.proxy.options.MaxBodyBytes
	if x.request.ContentLength > limit {
		return nil, &sizeError{limit}
	}
	began := time.Now()
	body, err = x.readAll(ctx, gzipped)
	x.admission += x.held.waited
	x.upload = time.Since(began) - x.held.waited
	if err != nil {
		x.held.release()
		return nil, err
	}
	x.held.keep(int64(len(body)))
	x.bytesIn = int64(len(body))
	return body, nil
}

func (x *exchange) readAll(ctx context.Context, gzipped bool) ([]byte, error) {
	upload := &x.incoming
	upload.stallReader = stallReader{body: x.request.Body, control: &x.control, timeout: x.proxy.options.ReadTimeout}
	upload.heldReader = heldReader{ctx: ctx, held: &x.held, size: x.request.ContentLength}
	defer func() {
		upload.done()
		x.unread = x.unread && upload.renewed.IsZero() // otherwise upload's deadline bounds it
	}()
	upload.r = &upload.stallReader
	if gzipped {
		plain, err := gzip.NewReader(&upload.stallReader)
		if err != nil {
			return nil, uploadError(err)
		}
		upload.r, upload.size = plain, -1
	}
	most := x.proxy.options.MaxBodyBytes
	if upload.size >= 0 {
		most = upload.size
	}
	x.held.begin(x.proxy.bodies, most)
	x.memory.pool = &x.proxy.bodyPool
	body, err := readLimited(&upload.heldReader, upload.size, x.proxy.options.MaxBodyBytes, &x.last, x.memory.grow)
	return body, uploadError(err)
}

// upload is how a body is read, in one piece of memory.
type upload struct {
	stallReader
	heldReader
}

// readLimited reads r to its end. Of a known size a little is allocated at
// first, and more once that has come, so that an announcement costs nothing. With
// an error it returns what had come.
//
// The end of a body of known size is seen by reading into last, without growing.
// Memory comes from grow, which is or does as [slices.Grow].
func readLimited(r io.Reader, size, limit int64, last *[1]byte, grow func([]byte, int) []byte) ([]byte, error) {
	const step = 4 << 10
	if size > limit {
		return nil, &sizeError{limit}
	}
	first := min(size, firstHeld)
	if size < 0 {
		first = step
	}
	body := grow(nil, int(first))
	for {
		room := body[len(body):cap(body)]
		switch {
		case len(room) > 0:
		case int64(len(body)) == size:
			room = last[:]
		default:
			more := len(body)
			if rest := int(size) - len(body); rest > 0 {
				more = min(rest, (growth-1)*len(body))
			}
			body = grow(body, more)
			room = body[len(body):cap(body)]
		}
		n, err := r.Read(room)
		if len(body) == cap(body) {
			body = append(body, last[:n]...)
		} else {
			body = body[:len(body)+n]
		}
		if int64(len(body)) > limit {
			return body, &sizeError{limit}
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}

// uploadError is a body that did not arrive, unless it was not wanted, found no
// place, or its sender has left.
func uploadError(err error) error {
	if _, unwanted := errors.AsType[*sizeError](err); err == nil || unwanted || errors.Is(err, errBytesBusy) || errors.Is(err, errClientGone) {
		return err
	}
	return fmt.Errorf("%w: %w", errUpload, err)
}

// isGzip says whether the body is gzipped; other codings are an error.
func isGzip(h http.Header) (bool, error) {
	switch coding := strings.ToLower(trimSpace(strings.Join(h["Content-Encoding"], ", "))); coding {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	default:
		return false, &codingError{coding}
	}
}

// stallReader gives up on an upload that stands still. A deadline for the
// whole body would cut a slow but steady one.
type stallReader struct {
	body    io.Reader
	control *http.ResponseController
	timeout time.Duration
	renewed time.Time
	ended   bool
}

func (s *stallReader) Read(b []byte) (int, error) {
	// Renewing a deadline costs more than reading the clock, so it is done
	// when a quarter of it has gone.
	if now := time.Now(); now.Sub(s.renewed) > s.timeout/4 {
		s.renewed = now
		if err := s.control.SetReadDeadline(now.Add(s.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	n, err := s.body.Read(b)
	s.ended = errors.Is(err, io.EOF)
	if brokeOff(err) {
		// net/http does not watch the connection before the body has ended, and
		// so the request's context does not say it.
		err = fmt.Errorf("%w: %w", errClientGone, err)
	}
	return n, err
}

// brokeOff tells the end of a client's connection from a body that is malformed
// or stands still.
func brokeOff(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || ok && !network.Timeout()
}

// done lifts the deadline, because the server goes on reading from the
// connection to notice that the client leaves. A body that has not ended keeps
// it, because the server reads what is left before it answers.
func (s *stallReader) done() {
	if s.ended {
		_ = s.control.SetReadDeadline(time.Time{}) // not supported outside a real server, and then never set
	}
}

// restBudget is how long the server may read on in a body that nobody has read,
// which it does before it answers, so that clients find the answer that write
// all before they read.
const restBudget = 5 * time.Second

// boundRest keeps a client that stalls from holding up its answer, or from
// holding it up until the deadline of the answer's write is over.
func (x *exchange) boundRest() {
	if x.unread {
		rest := min(restBudget, x.proxy.options.WriteTimeout/2)
		_ = x.control.SetReadDeadline(time.Now().Add(rest)) // as in done
	}
}
