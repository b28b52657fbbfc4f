package upstream

import (
	"bytes"
	"errors"
	"io"
	"math"
)

var errChunk = errors.New("malformed chunk in the answer")

// maxChunkLine bounds the line before a chunk, and a trailer.
const maxChunkLine = 4 << 10

// chunkState is what comes next in a chunked body (RFC 9112, section 7.1).
type chunkState int

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // the end of line after the data
	chunkTrailer
)

// unchunk takes the framing out of the next bytes of the body: it moves the data
// together, to the front of b, and returns how much that is. io.EOF is the end.
func (f *framing) unchunk(b []byte) (n int, err error) {
	for i := 0; i < len(b); {
		if f.chunk == chunkData {
			k := copy(b[n:], b[i:][:min(int64(len(b)-i), f.left)])
			n += k
			i += k
			if f.left -= int64(k); f.left == 0 {
				f.chunk = chunkEnd
			}
			continue
		}
		line, k, err := f.nextLine(b[i:])
		if i += k; err == nil && line != nil {
			err = f.pass(line)
		}
		if err != nil {
			f.beyond = i < len(b)
			return n, err
		}
	}
	return n, nil
}

// nextLine cuts the line that b begins with, without its end. It is nil, and what
// there is of it is kept, if it has not come whole.
func (f *framing) nextLine(b []byte) (line []byte, n int, err error) {
	limit := maxChunkLine
	if f.chunk == chunkEnd {
		limit = len("\r\n")
	}
	n = bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		n = len(b)
	}
	if line = b[:n]; len(f.partial) > 0 {
		f.partial = append(f.partial, line...)
		line = f.partial
	}
	whole := line[len(line)-1] == '\n'
	if len(line) > limit || len(line) == limit && !whole {
		return nil, n, errChunk
	}
	if !whole {
		if len(f.partial) == 0 {
			f.partial = append(f.partial, line...)
		}
		return nil, n, nil
	}
	f.partial = f.partial[:0]
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return nil, n, errChunk
	}
	return line, n, nil
}

// pass goes on behind a line. io.EOF says that it was the last.
func (f *framing) pass(line []byte) (err error) {
	switch f.chunk {
	case chunkSize:
		f.left, err = parseSize(line)
		f.chunk = chunkData
		if f.left == 0 {
			f.chunk = chunkTrailer
		}
	case chunkTrailer:
		if len(line) == 0 {
			return io.EOF
		}
		if f.lines -= len(line); f.lines < 0 {
			return errLongHead
		}
		_, _, err = parseField(line)
	case chunkEnd, chunkData:
		f.chunk = chunkSize
	}
	return err
}

// parseSize reads the size of a chunk, which extensions may follow.
func parseSize(line []byte) (int64, error) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 16 {
		return 0, errChunk
	}
	var n uint64
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errChunk
		}
		n = n<<4 | uint64(c)
	}
	if n > math.MaxInt64 {
		return 0, errChunk
	}
	return int64(n), nil
}
