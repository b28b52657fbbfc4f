package registry

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

// memory counts what all traces take.
type memory struct {
	limit      int64 // 0 is none
	bytes      atomic.Int64
	workspaces sync.Pool // of *workspace
}

func (m *memory) over() bool { return m.limit > 0 && m.bytes.Load() > m.limit }

// workspace is memory for adding one record, to be used again for another.
type workspace struct {
	walker
	contents []content
	rest     []byte
	prefixes []int // how much of each content the base has at its start
	tried    []int // the same for another record
}

func (m *memory) workspace() *workspace {
	if w, ok := m.workspaces.Get().(*workspace); ok {
		return w
	}
	return new(workspace)
}

// baseCandidates is how many of a session's latest records a new one is compared with. Sub-agents that take turns have as many
// conversations that grow side by side.
const baseCandidates = 8

// store keeps the requests of one session by their exact bytes, each as what it has beyond an earlier one. An agent sends its whole
// conversation with every turn, so that T turns take memory for T messages and not for T²/2.
type store struct {
	memory *memory

	session *Session // nil unless there is a journal

	mu      sync.Mutex
	bytes   int64     // what memory was told
	recent  []*record // oldest first, at most baseCandidates
	dropped bool

	lastRow uint32 // the highest of the parts in the journal, whose writer it belongs to
}

// add keeps a copy of body. The caller owns the record and gives it back with release.
func (s *store) add(body []byte, spans []Part) *record {
	return s.addListed(body, spans, List{}, Known{})
}

// addListed keeps a copy of a body with a list, of which it is known how it begins.
func (s *store) addListed(body []byte, spans []Part, list List, known Known) *record {
	w := s.memory.workspace()
	defer s.memory.workspaces.Put(w)
	w.split(body, spans)
	defer clear(w.contents)

	s.mu.Lock()
	defer s.mu.Unlock()
	base := s.base(w, known)
	r, place := newRecord(len(w.contents), list)
	cost := int64(recordOverhead + fieldOverhead*len(r.fields) + elementSize*len(list.Elements))
	for i, c := range w.contents {
		before := base.find(c.key)
		p, added := w.derive(place, before.part, w.prefixes[i], c.bytes)
		r.fields[i] = field{key: before.key, at: c.at, part: p} // the key is kept once
		cost += added
		if p == place {
			place = nil
		}
	}
	rest := s.restBase(base)
	p, added := w.derive(place, rest, w.commonPrefix(rest, w.rest), w.rest)
	r.rest = p
	s.charge(cost + added)

	if base != nil && base.list.Seed == list.Seed && len(base.list.Elements) <= len(known.Elements) && known.record == base {
		s.forgetList(base)
	}
	if len(s.recent) == baseCandidates {
		s.forgetList(s.recent[0])
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	s.recent = append(s.recent, r)
	return r
}

// forgetList lets the elements of a list go, which nobody will look for again.
func (s *store) forgetList(r *record) {
	s.charge(-int64(elementSize * len(r.list.Elements)))
	r.list.Elements = nil
}

// keep takes a run of the turn's response out of it, to be kept as what it has beyond that of an earlier turn: the token ids of a prompt
// repeat those of the one before it.
func (s *store) keep(t *Turn, run []byte) {
	at := -1
	if len(run) >= minShared {
		at = bytes.Index(t.response, run)
	}
	if at < 0 {
		return
	}
	t.shared, t.sharedAt = s.add(run, []Part{{Key: sharedRun, End: len(run)}}), at
	t.response = slices.Concat(t.response[:at], t.response[at+len(run):])
}

// sharedRun is the key of the run that a response shares. It is no text, and so no field of a request.
const sharedRun = "\xff"

// release gives back what no other record is made of. r may be nil.
func (s *store) release(r *record) {
	if r == nil {
		return
	}
	s.mu.Lock()
	freed := s.letGo(r)
	s.mu.Unlock()
	s.forget(freed)
}

// exchange counts what was received for a failed call, and gives back the one whose place it took, if there is one.
func (s *store) exchange(added, dropped *FailedCall) {
	s.mu.Lock()
	s.charge(added.cost())
	if dropped == nil {
		s.mu.Unlock()
		return
	}
	s.charge(-dropped.cost())
	freed := s.letGo(dropped.request)
	s.mu.Unlock()
	s.forget(freed, dropped.row)
}

// letGo returns the parts that are free, if somebody has to know.
func (s *store) letGo(r *record) (freed []*part) {
	if r == nil {
		return nil
	}
	s.recent = slices.DeleteFunc(s.recent, func(kept *record) bool { return kept == r })
	s.forgetList(r)
	s.charge(-int64(recordOverhead + fieldOverhead*len(r.fields)))
	freed = s.letPartGo(freed, r.rest)
	for _, f := range r.fields {
		freed = s.letPartGo(freed, f.part)
	}
	return freed
}

// letPartGo takes one reference from p, which frees it if it was the last, then perhaps its base, and so on.
func (s *store) letPartGo(freed []*part, p *part) []*part {
	for ; p != nil; p = p.base {
		p.refs--
		if p.refs > 0 {
			break
		}
		s.charge(-p.cost())
		if s.session != nil {
			freed = append(freed, p)
		}
	}
	return freed
}

// forget has parts and calls taken out of the journal, if there is one.
func (s *store) forget(parts []*part, calls ...uint32) {
	if s.session != nil {
		s.session.noteDropped(parts, calls...)
	}
}

// grow counts bytes that are kept beside the requests.
func (s *store) grow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(int64(n))
}

// drop gives everything back. What is still added is not counted any more.
func (s *store) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(-s.bytes)
	s.dropped = true
	s.recent = nil
}

func (s *store) charge(n int64) {
	if !s.dropped {
		s.bytes += n
		s.memory.bytes.Add(n)
	}
}

// base returns the recent record that has most in common with w.contents, as nearest does. What is known to be most of them need not be
// looked for and compared again.
func (s *store) base(w *workspace, known Known) *record {
	total := 0
	for _, c := range w.contents {
		total += len(c.bytes)
	}
	if known.record == nil || 2*known.common < total || !slices.Contains(s.recent, known.record) {
		return s.nearest(w)
	}
	w.prefixes = w.prefixes[:0]
	for _, c := range w.contents {
		prefix := min(known.common, len(c.bytes))
		if c.key != known.field {
			prefix = w.commonPrefix(known.record.field(c.key), c.bytes)
		}
		w.prefixes = append(w.prefixes, prefix)
	}
	return known.record
}

// nearest returns the recent record that has most in common with w.contents, nil if none has enough, and sets w.prefixes.
func (s *store) nearest(w *workspace) *record {
	n := len(w.contents)
	w.prefixes = append(w.prefixes[:0], make([]int, n)...)
	w.tried = append(w.tried[:0], make([]int, n)...)
	var base, last *record
	most := minShared - 1
	for _, r := range slices.Backward(s.recent) {
		total, whole := 0, n > 0
		for i, c := range w.contents {
			p := r.field(c.key)
			if last == nil || last.field(c.key) != p {
				w.tried[i] = w.commonPrefix(p, c.bytes)
			}
			total += w.tried[i]
			// One byte less is the closing bracket of a list that has grown.
			whole = whole && p != nil && w.tried[i] >= p.length-1
		}
		last = r
		if total > most {
			base, most = r, total
			copy(w.prefixes, w.tried)
		}
		if whole {
			break
		}
	}
	return base
}

// restBase returns the part that resembles most what is between the fields, nil if there is none.
func (s *store) restBase(base *record) *part {
	switch {
	case base != nil:
		return base.rest
	default:
		for _, r := range slices.Backward(s.recent) {
			if r.field(sharedRun) == nil {
				return r.rest
			}
		}
		return nil
	}
}

// derive returns a part with the contents b that shares prefix bytes, and perhaps a suffix, with base, and what it costs. It is made in
// place, unless that is nil, but a part that is equal to its base is its base.
func (w *walker) derive(place, base *part, prefix int, b []byte) (*part, int64) {
	if base != nil && prefix == base.length && prefix == len(b) {
		base.refs++
		return base, 0
	}
	suffix := w.commonSuffix(base, b, prefix)
	for base != nil && base.base != nil && prefix <= base.prefix && suffix <= base.suffix {
		base = base.base // has all that is shared: the way there must not get longer with every turn
	}
	if prefix+suffix < minShared {
		base, prefix, suffix = nil, 0, 0
	} else {
		base.refs++
	}
	if place == nil {
		place = new(part)
	}
	*place = part{
		base: base, prefix: prefix, suffix: suffix, length: len(b), refs: 1,
		middle: bytes.Clone(b[prefix : len(b)-suffix]),
	}
	return place, place.cost()
}
