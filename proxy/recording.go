package proxy

import "slices"

// A recording is the body of a stream as it comes: read into, cut into events
// and kept in the same memory. It grows by whole pieces, because to copy what a
// long stream has said so far, again and again, costs more than to relay it.
type recording struct {
	done   [][]byte // pieces that are full
	buf    []byte   // the piece that is read into
	parsed int      // of buf: up to here whole events were handled
	length int64    // of all
}

// The sizes of pieces: small for streams that say little, and doubling.
const (
	firstPiece = 4 << 10
	lastPiece  = 64 << 10
	leastRoom  = 1 << 10 // worth reading into
)

// room is where the next bytes go.
func (r *recording) room() []byte {
	if cap(r.buf)-len(r.buf) < leastRoom {
		r.roll()
	}
	return r.buf[len(r.buf):cap(r.buf)]
}

// add notes that n bytes were read into the room.
func (r *recording) add(n int) {
	r.buf = r.buf[:len(r.buf)+n]
	r.length += int64(n)
}

// rest is what belongs to no whole event yet.
func (r *recording) rest() []byte { return r.buf[r.parsed:] }

// roll makes room: in a new piece, which begins with what is left of an event,
// or if that fills a piece by itself, in one that is twice as large.
func (r *recording) roll() {
	rest := r.rest()
	if len(rest) > cap(r.buf)/2 {
		r.buf = slices.Grow(r.buf, max(len(r.buf), firstPiece))
		return
	}
	next := make([]byte, len(rest), min(max(2*cap(r.buf), firstPiece), max(lastPiece, 4*len(rest))))
	copy(next, rest)
	if r.parsed > 0 {
		r.done = append(r.done, r.buf[:r.parsed])
	}
	r.buf, r.parsed = next, 0
}

// whole is all that was received, in one piece.
func (r *recording) whole() []byte {
	if len(r.done) == 0 && cap(r.buf)-len(r.buf) <= len(r.buf)/4 {
		return r.buf
	}
	return slices.Concat(append(r.done, r.buf)...)
}
