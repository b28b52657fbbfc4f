package proxy

import "slices"

// A recording is the body of a stream as it comes: read into, cut into events
// and kept in the same memory. It grows by whole pieces, because to copy what a
// long stream has said so far, again and again, costs more than to relay it.
type recording struct {
	buf    []byte   // the piece that is read into
	parsed int      // of buf: up to here whole events were handled
	length int64    // of all
	done   [][]byte // pieces that are full
}

// The sizes of pieces. Of what a stream has room for, it has used two thirds at
// least: many are open at a time, and most say little.
const (
	firstPiece = 2 << 10
	lastPiece  = 64 << 10
	leastRoom  = 512 // worth reading into
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
// or if that fills most of the piece, by making it larger.
func (r *recording) roll() {
	rest := r.rest()
	if len(rest) > cap(r.buf)/2 {
		r.buf = slices.Grow(r.buf, max(len(r.buf), firstPiece))
		return
	}
	next := make([]byte, len(rest), max(firstPiece, min(int(r.length/2), lastPiece), 4*len(rest)))
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
