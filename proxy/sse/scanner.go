package sse

import "bytes"

const bom = "\xef\xbb\xbf"

// A Scanner finds where events end in a stream that arrives piece by piece. Its
// zero value is at the start of a stream. It holds no bytes, only how far it
// has looked, and must not be used concurrently.
type Scanner struct {
	pos     int  // bytes of the event that need no second look
	midLine bool // the line that pos is in has bytes before pos
	begun   bool // past the place of a byte order mark
}

// Next returns the length of the first event in buf with all of its blank line,
// or 0 if the event is not whole yet. buf starts where the last event ended;
// after a 0 it must be given again from the same byte on, with more behind it.
//
// Lines end in \n, \r\n or \r, also mixed. A \r that ends buf may be half of a
// \r\n, so an event that ends in one is whole only when the next byte is there:
// what is left at the end of a stream may be such an event, or a torn one.
// A byte order mark belongs to the first event. Blank lines that end nothing
// are events of their own, without fields.
//
// However many pieces an event comes in, each of its bytes is looked at once.
func (s *Scanner) Next(buf []byte) int {
	if !s.begun && !s.begin(buf) {
		return 0
	}
	for s.pos < len(buf) {
		end := lineEnd(buf, s.pos)
		s.midLine = s.midLine || end > s.pos
		s.pos = end
		width := terminator(buf, end)
		if width == 0 || buf[end] == '\r' && end+1 == len(buf) {
			return 0
		}
		s.pos += width
		if !s.midLine {
			n := s.pos
			s.pos = 0
			return n
		}
		s.midLine = false
	}
	return 0
}

// begin steps over a byte order mark; false asks for more bytes.
func (s *Scanner) begin(buf []byte) bool {
	if len(buf) < len(bom) && bytes.HasPrefix([]byte(bom), buf) {
		return false
	}
	if bytes.HasPrefix(buf, []byte(bom)) {
		s.pos = len(bom)
	}
	s.begun = true
	return true
}

// lineEnd returns the offset of the first \n or \r at or after i, or len(buf).
// It looks for one after the other, a window at a time: neither search may run
// far beyond the other's find, again and again.
func lineEnd(buf []byte, i int) int {
	const window = 512
	for i < len(buf) {
		w := buf[i:min(i+window, len(buf))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return i + cr
		}
		i += len(w)
		if lf >= 0 {
			break
		}
	}
	return i
}

// terminator returns the length of the line end at buf[i], 0 at the end of buf.
func terminator(buf []byte, i int) int {
	switch {
	case i >= len(buf):
		return 0
	case buf[i] == '\r' && i+1 < len(buf) && buf[i+1] == '\n':
		return 2
	}
	return 1
}
