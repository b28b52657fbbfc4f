package registry

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// part is a run of bytes, kept as what it has beyond another: the first prefix bytes of base, then middle, then the last suffix
// bytes of base. It does not change, apart from refs, which the store guards, and row, which belongs to the journal's writer.
type part struct {
	base           *part // nil if there is only middle
	prefix, suffix int
	middle         []byte
	length         int
	refs           int32  // parts and records that hold this one
	row            uint32 // in the journal; 0 as long as it is not there
}

func (p *part) cost() int64 { return partOverhead + int64(len(p.middle)) }

// minShared is the least number of common bytes that make a base worth its bookkeeping.
const minShared = 64

// window is the bytes from lo to hi of a part.
type window struct {
	part   *part
	lo, hi int
}

// walker lists the bytes of parts without copying them. Its memory is for use again.
type walker struct {
	pending  []window
	segments [][]byte
}

// walk returns the contents of p in pieces, which are valid until the next walk. It goes from the end to the beginning, and does not
// recurse: a part's base is the part of the turn before, its base that of the one before that, and so on, thousands deep.
func (w *walker) walk(p *part) [][]byte {
	w.segments = w.segments[:0]
	w.pending = append(w.pending[:0], window{p, 0, p.length})
	for len(w.pending) > 0 {
		last := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		w.backward(last.part, last.lo, last.hi)
	}
	slices.Reverse(w.segments)
	return w.segments
}

// backward lists the bytes from lo to hi of p, or the end of them and leaves the rest pending.
func (w *walker) backward(p *part, lo, hi int) {
	for lo < hi {
		suffix := p.prefix + len(p.middle)
		if hi > suffix {
			shift := p.base.length - p.length
			if lo < suffix {
				w.pending = append(w.pending, window{p, lo, suffix})
			}
			p, lo, hi = p.base, max(lo, suffix)+shift, hi+shift
			continue
		}
		if from := max(lo, p.prefix); from < hi {
			w.segments = append(w.segments, p.middle[from-p.prefix:hi-p.prefix])
		}
		p, hi = p.base, min(hi, p.prefix)
	}
}

// at returns the byte of p at i.
func (p *part) at(i int) byte {
	for {
		switch end := p.prefix + len(p.middle); {
		case i < p.prefix:
		case i < end:
			return p.middle[i-p.prefix]
		default:
			i += p.base.length - p.length
		}
		p = p.base
	}
}

// sharedStart returns how many bytes p and q, which may be nil, are known to have in common at their start: what both have of a part
// that they are made of, which is looked for as far as the recent records can be from each other.
func (p *part) sharedStart(q *part) int {
	if q == nil {
		return 0
	}
	of := p.length
	for range baseCandidates {
		if p == nil {
			break
		}
		if common := p.startOf(q); common > 0 {
			return min(of, common)
		}
		of, p = min(of, p.prefix), p.base
	}
	return 0
}

// startOf returns how many bytes q, as far as it is made of p, has of p's start.
func (p *part) startOf(q *part) int {
	of := p.length
	for range baseCandidates {
		if q == p {
			return of
		}
		if q.base == nil {
			break
		}
		of, q = min(of, q.prefix), q.base
	}
	return 0
}

// commonPrefix returns how many bytes p, which may be nil, and b have in common at their start.
func (w *walker) commonPrefix(p *part, b []byte) int { return w.commonPrefixFrom(p, b, 0) }

// commonPrefixFrom is commonPrefix where it is known that the first bytes are the same.
func (w *walker) commonPrefixFrom(p *part, b []byte, known int) int {
	if p == nil {
		return 0
	}
	common := 0
	for _, segment := range w.walk(p) {
		if common+len(segment) <= known {
			common += len(segment)
			continue
		}
		if skip := known - common; skip > 0 {
			common, segment = known, segment[skip:]
		}
		n := min(len(segment), len(b)-common)
		same := mismatch(segment[:n], b[common:common+n])
		common += same
		if same < len(segment) {
			break
		}
	}
	return common
}

// commonSuffix returns how many bytes p, which may be nil, and b have in common at their end, beyond the given prefix that they have
// in common at their start; 0 if that is not worth it.
func (w *walker) commonSuffix(p *part, b []byte, prefix int) int {
	if p == nil {
		return 0
	}
	limit := min(p.length, len(b)) - prefix
	if limit < minShared {
		return 0
	}
	common := 0
	for _, segment := range slices.Backward(w.walk(p)) {
		n := min(len(segment), limit-common)
		end := len(b) - common
		same := mismatchFromEnd(segment[len(segment)-n:], b[end-n:end])
		common += same
		if same < len(segment) {
			break
		}
	}
	if common < minShared {
		return 0
	}
	return common
}

// block is how many bytes are compared in one go, which is many times faster than finding the one that differs.
const block = 1024

// mismatch returns how many bytes a and b, of one length, have in common at their start.
func mismatch(a, b []byte) int {
	i := 0
	for i < len(a) {
		n := min(block, len(a)-i)
		if !bytes.Equal(a[i:i+n], b[i:i+n]) {
			break
		}
		i += n
	}
	for ; i+8 <= len(a); i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i
}

// mismatchFromEnd returns how many bytes a and b, of one length, have in common at their end.
func mismatchFromEnd(a, b []byte) int {
	end := len(a)
	for end > 0 {
		n := min(block, end)
		if !bytes.Equal(a[end-n:end], b[end-n:end]) {
			break
		}
		end -= n
	}
	for ; end >= 8; end -= 8 {
		if x := binary.LittleEndian.Uint64(a[end-8:]) ^ binary.LittleEndian.Uint64(b[end-8:]); x != 0 {
			return len(a) - end + bits.LeadingZeros64(x)/8
		}
	}
	for end > 0 && a[end-1] == b[end-1] {
		end--
	}
	return len(a) - end
}
