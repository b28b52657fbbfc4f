package registry

import "slices"

// lineage knows by what later requests show that they continue a turn. It is made of what turns have recorded, and of nothing else.
// Session.mu guards it.
type lineage struct {
	continuations map[uint64]int // to the newest turn with a choice of this hash
	lengths       []int          // of the texts among them, ascending
	ids           map[string]int // to the newest turn with this id
}

// add makes a turn known. Turns are added in their order.
func (l *lineage) add(turn *Turn) {
	for _, choice := range turn.Choices {
		if choice.Continuation == 0 {
			continue
		}
		if l.continuations == nil {
			l.continuations = make(map[uint64]int)
		}
		l.continuations[choice.Continuation] = turn.Index
		if at, known := slices.BinarySearch(l.lengths, choice.TextLength); !known && choice.TextLength > 0 {
			l.lengths = slices.Insert(l.lengths, at, choice.TextLength)
		}
	}
	for _, id := range turn.IDs {
		if l.ids == nil {
			l.ids = make(map[string]int)
		}
		l.ids[id] = turn.Index
	}
}

// origin is what was found for a request: the newest turn that the longest of its prefixes continues. The zero value has found nothing
// among no turns.
type origin struct {
	turns int32 // among which it was looked for
	turn  int32
	depth int32 // how many prefixes there are up to that one; 0 is that there is no such turn
}

// maxNewer is how many turns are looked at one by one.
const maxNewer = 2 * baseCandidates

// origin finds where a request comes from. As far as its prefixes are those of a known request before it, it continues what that one has
// found or a turn that came after: of a long conversation not every message is looked up again.
func (s *Session) origin(request *Request) origin {
	none := origin{turns: int32(len(s.turns))}
	before, common := none, request.Known.among(request.Prefixes)
	if common > 0 {
		before = request.Known.record.origin
	}
	if int(before.depth) > common || none.turns-before.turns > maxNewer {
		before, common = none, 0
	}
	found := none
	for depth := len(request.Prefixes); depth > common; depth-- {
		if turn, ok := s.lineage.continuations[request.Prefixes[depth-1]]; ok {
			found.turn, found.depth = int32(turn), int32(depth)
			return found
		}
	}
	found.turn, found.depth = before.turn, before.depth
	for _, turn := range s.turns[before.turns:] {
		for _, choice := range turn.Choices {
			depth := 1 + slices.Index(request.Prefixes[:common], choice.Continuation)
			if depth > 0 && depth >= int(found.depth) && choice.Continuation != 0 {
				found.turn, found.depth = int32(turn.Index), int32(depth)
			}
		}
	}
	return found
}

// among returns how many of a request's prefixes are known.
func (k *Known) among(prefixes []uint64) int {
	if n := len(k.Elements); n > 0 {
		for i, prefix := range slices.Backward(prefixes) {
			if prefix == k.Elements[n-1].Prefix {
				return i + 1
			}
		}
	}
	return 0
}

// textLengths returns the lengths of the texts that a request may continue, ascending.
func (s *Session) textLengths() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lineage.lengths)
}

// Received returns the newest turn whose response, or a part of it, has this id.
func (s *Session) Received(id string) (index int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, ok = s.lineage.ids[id]
	return index, ok
}
