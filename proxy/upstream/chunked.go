package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
)

var errChunk = errors.New("malformed chunk in the answer")

// chunkState is what comes next in a chunked body (RFC 9112, section 7.1).
type chunkState int

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // the end of line after the data
	chunkTrailer
)

// readChunked reads on through chunks as long as nothing has to be waited for.
func (f *framing) readChunked(r *bufio.Reader, p []byte) (n int, err error) {
	for n == 0 || n < len(p) && f.ready(r) {
		switch f.chunk {
		case chunkData:
			var k int
			k, err = r.Read(p[n:][:min(int64(len(p)-n), f.left)])
			n += k
			if f.left -= int64(k); f.left == 0 {
				f.chunk = chunkEnd
			}
		case chunkEnd:
			err = f.endChunk(r)
		case chunkSize:
			err = f.startChunk(r)
		case chunkTrailer:
			if err = f.skipTrailer(r); errors.Is(err, io.EOF) {
				return n, io.EOF
			}
		}
		if err != nil {
			return n, noEOF(err)
		}
	}
	return n, nil
}

// ready reports whether the next step needs nothing that is not in the buffer.
func (f *framing) ready(r *bufio.Reader) bool {
	buffered := r.Buffered()
	switch f.chunk {
	case chunkData:
		return buffered > 0
	case chunkEnd:
		return buffered >= 2
	default:
		b, _ := r.Peek(buffered) // it is there
		return bytes.IndexByte(b, '\n') >= 0
	}
}

func (f *framing) endChunk(r *bufio.Reader) error {
	end, err := r.Peek(2)
	if err != nil {
		return err
	}
	if string(end) != "\r\n" {
		return errChunk
	}
	f.chunk = chunkSize
	_, err = r.Discard(2)
	return err
}

// startChunk reads the line before a chunk.
func (f *framing) startChunk(r *bufio.Reader) error {
	line, err := chunkLine(r)
	if err != nil {
		return err
	}
	if f.left, err = parseSize(line); err != nil {
		return err
	}
	f.chunk = chunkData
	if f.left == 0 {
		f.chunk = chunkTrailer
	}
	return nil
}

// skipTrailer reads a line after the last chunk, and gives io.EOF when it was the
// last.
func (f *framing) skipTrailer(r *bufio.Reader) error {
	line, err := chunkLine(r)
	switch {
	case err != nil:
		return noEOF(err)
	case len(line) == 0:
		return io.EOF
	}
	if f.lines -= len(line); f.lines < 0 {
		return errLongHead
	}
	_, _, err = parseField(line)
	return err
}

// chunkLine reads a line. One that does not fit the buffer is an error.
func chunkLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errChunk
	}
	if err != nil {
		return nil, err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return nil, errChunk
	}
	return line, nil
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
