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

// parent returns the newest turn that the longest of the prefixes continues.
func (l *lineage) parent(prefixes []uint64) *int {
	for _, prefix := range slices.Backward(prefixes) {
		if index, ok := l.continuations[prefix]; ok && prefix != 0 {
			return new(index)
		}
	}
	return nil
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
