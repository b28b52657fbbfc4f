package registry

import "slices"

// Element is one element of a list that a request has as the value of a field.
type Element struct {
	End    int    // where it ends in the value
	Prefix uint64 // the hash of the conversation up to and including it, see [Request]
}

// elementSize is what an element takes.
const elementSize = 16

// List is the elements of the list that is a request's conversation.
type List struct {
	Field    string // whose value it is
	Seed     uint64 // equal for lists whose elements, if they are equal, have equal prefixes
	Elements []Element
}

// Known is how much of a list the session has sent before.
type Known struct {
	Elements []Element // those that the list begins with, which must not be changed
	Seed     uint64    // of the list that they were in

	record *record
	field  string
	common int // bytes
}

// Known finds what the value of a field, a list that text begins with, has in common with those of the latest requests. An agent
// sends its whole conversation with every turn: what was validated and hashed once need not be again if it has the same bytes.
func (s *Session) Known(field string, text []byte) Known {
	if len(text) < minShared || text[0] != '[' {
		return Known{}
	}
	var lists [baseCandidates]keptList
	w := s.registry.memory.workspace()
	defer s.registry.memory.workspaces.Put(w)
	return w.known(s.store.lists(field, lists[:0]), field, text)
}

// keptList is a list as a record has it.
type keptList struct {
	record *record
	value  *part
	seed   uint64
	known  []Element
}

// lists appends the lists of that field in the latest requests, newest first.
func (s *store) lists(field string, to []keptList) []keptList {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Backward(s.recent) {
		if value := r.field(field); value != nil && r.list.Field == field && len(r.list.Elements) > 0 {
			to = append(to, keptList{r, value, r.list.Seed, r.list.Elements})
		}
	}
	return to
}

// known finds the list that text has most in common with.
func (w *walker) known(lists []keptList, field string, text []byte) (best Known) {
	var nearest *part
	for _, l := range lists {
		if best.common >= min(l.value.length, len(text)) || l.value.at(best.common) != text[best.common] {
			continue // it has no more in common with text
		}
		shared := l.value.sharedStart(nearest)
		if shared > best.common {
			continue // it differs from text where the nearest does
		}
		common := w.commonPrefixFrom(l.value, text, shared)
		if common <= best.common {
			continue
		}
		nearest = l.value
		best = Known{Seed: l.seed, Elements: begun(l.known, text[:common]), record: l.record, field: field, common: common}
		if common >= l.value.length-1 { // all of it, but for the closing bracket
			break
		}
	}
	return best
}

// begun returns the elements that are whole in text. Only what ends with a bracket or a quote cannot go on behind its end.
func begun(elements []Element, text []byte) []Element {
	for n := len(elements); n > 0; n-- {
		if end := elements[n-1].End; end <= len(text) {
			if last := text[end-1]; last == '}' || last == ']' || last == '"' {
				return elements[:n:n]
			}
		}
	}
	return nil
}
