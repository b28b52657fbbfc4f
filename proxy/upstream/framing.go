package upstream

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

var errFraming = errors.New("the answer does not say how long it is")

// bodyKind is how the end of an answer's body is found (RFC 9112, section 6.3).
type bodyKind int

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
	bodyUntilClose
)

// framing is where in its body an answer is.
type framing struct {
	kind    bodyKind
	left    int64 // of the body, or of the chunk
	chunk   chunkState
	beyond  bool   // more came than the body
	lines   int    // bytes that trailers may still take
	partial []byte // of a line between chunks
}

// frame finds out how long the body is, and completes the answer by that.
func frame(res *http.Response, toHead bool) (framing, error) {
	length, err := contentLength(res.Header["Content-Length"])
	if err != nil {
		return framing{}, err
	}
	coding, coded := res.Header["Transfer-Encoding"]
	if length >= 0 {
		res.Header["Content-Length"] = res.Header["Content-Length"][:1]
	}
	delete(res.Header, "Transfer-Encoding")
	delete(res.Header, "Trailer") // trailers are not passed on
	res.Close = res.ProtoMinor == 0 || closes(res.Header["Connection"])
	res.ContentLength = length
	switch {
	case coded && (len(coding) != 1 || !strings.EqualFold(coding[0], "chunked")):
		return framing{}, errFraming
	case coded && (length >= 0 || res.ProtoMinor == 0):
		return framing{}, errFraming // two opinions; somebody may be smuggling
	case toHead, res.StatusCode == http.StatusNoContent, res.StatusCode == http.StatusNotModified:
		return framing{}, nil
	case coded:
		return framing{kind: bodyChunked, lines: maxHead}, nil
	case length == 0:
		return framing{}, nil
	case length > 0:
		return framing{kind: bodyLength, left: length}, nil
	default:
		res.Close = true
		return framing{kind: bodyUntilClose}, nil
	}
}

// contentLength is -1 when there is none. Several must agree.
func contentLength(values []string) (int64, error) {
	if len(values) == 0 {
		return -1, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return 0, errFraming
		}
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return 0, errFraming
	}
	return int64(n), nil //nolint:gosec // of 63 bits
}

// closes reports whether a Connection header has the option close.
func closes(values []string) bool {
	for _, v := range values {
		for option := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(option, " \t"), "close") {
				return true
			}
		}
	}
	return false
}

// read reads once, which may give nothing of the body. io.EOF comes with its last
// bytes.
func (f *framing) read(r io.Reader, p []byte) (int, error) {
	switch f.kind {
	case bodyLength:
		n, err := r.Read(p[:min(int64(len(p)), f.left)])
		if f.left -= int64(n); f.left == 0 {
			return n, io.EOF
		}
		return n, noEOF(err)
	case bodyChunked:
		if f.chunk == chunkData && f.left > readSize {
			p = p[:min(int64(len(p)), f.left)] // a long chunk does not wait for what is behind it
		}
		n, err := r.Read(p)
		n, end := f.unchunk(p[:n])
		if end == nil {
			end = noEOF(err)
		}
		return n, end
	case bodyUntilClose:
		return r.Read(p)
	default:
		return 0, io.EOF
	}
}

// skip reports whether b, which comes next, has the rest of the body.
func (f *framing) skip(b []byte) bool {
	switch f.kind {
	case bodyNone:
		return true
	case bodyLength:
		f.beyond = int64(len(b)) > f.left
		return int64(len(b)) >= f.left
	case bodyChunked:
		_, err := f.unchunk(b)
		return errors.Is(err, io.EOF)
	default:
		return false
	}
}
