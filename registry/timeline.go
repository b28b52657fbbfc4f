package registry

import (
	"slices"
	"sort"
)

// timeline holds sessions in the order they were registered. One that is removed leaves a hole, and the holes are closed when they
// are half of it.
type timeline struct {
	sessions []*Session
	numbers  []uint64 // of the sessions, holes too
	last     uint64
	holes    int
}

// add numbers the session and puts it last.
func (t *timeline) add(s *Session) {
	s.number = t.last + 1
	t.put(s)
}

// put puts a session last that has its number, which is higher than all others.
func (t *timeline) put(s *Session) {
	t.last = s.number
	t.sessions = append(t.sessions, s)
	t.numbers = append(t.numbers, s.number)
}

func (t *timeline) remove(s *Session) {
	i, found := slices.BinarySearch(t.numbers, s.number)
	if !found || t.sessions[i] == nil {
		return
	}
	t.sessions[i] = nil
	t.holes++
	if t.holes > len(t.sessions)/2 {
		t.sessions = slices.DeleteFunc(t.sessions, func(s *Session) bool { return s == nil })
		t.numbers = t.numbers[:0]
		for _, s := range t.sessions {
			t.numbers = append(t.numbers, s.number)
		}
		t.holes = 0
	}
}

// before returns at most n sessions with lower numbers, the newest first.
func (t *timeline) before(number uint64, n int) []*Session {
	i := sort.Search(len(t.numbers), func(i int) bool { return t.numbers[i] >= number })
	sessions := make([]*Session, 0, min(n, i))
	for i--; i >= 0 && len(sessions) < n; i-- {
		if t.sessions[i] != nil {
			sessions = append(sessions, t.sessions[i])
		}
	}
	return sessions
}
