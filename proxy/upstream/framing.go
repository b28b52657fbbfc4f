package upstream

import (
	"bufio"
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
	kind  bodyKind
	left  int64 // of the body, or of the chunk
	chunk chunkState
	lines int // bytes that trailers may still take
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

// read reads some of the body. io.EOF comes with its last bytes.
func (f *framing) read(r *bufio.Reader, p []byte) (int, error) {
	switch f.kind {
	case bodyLength:
		n, err := r.Read(p[:min(int64(len(p)), f.left)])
		if f.left -= int64(n); f.left == 0 {
			return n, io.EOF
		}
		return n, noEOF(err)
	case bodyChunked:
		return f.readChunked(r, p)
	case bodyUntilClose:
		return r.Read(p)
	default:
		return 0, io.EOF
	}
}

// skip reports whether the rest of the body has been read already; it is gone
// then.
func (f *framing) skip(r *bufio.Reader) bool {
	switch f.kind {
	case bodyNone:
		return true
	case bodyLength:
		if int64(r.Buffered()) < f.left {
			return false
		}
		_, _ = r.Discard(int(f.left))
		return true
	case bodyChunked:
		var scratch [512]byte
		for f.ready(r) {
			if _, err := f.readChunked(r, scratch[:]); err != nil {
				return errors.Is(err, io.EOF)
			}
		}
	case bodyUntilClose:
	}
	return false
}
