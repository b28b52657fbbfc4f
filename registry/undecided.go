package registry

// AskLater notes a turn whose [Settings].StopHooks could not all be asked, so that the next call does not go on as if they had said
// no.
func (s *Session) AskLater(turn *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undecided = append(s.undecided, turn)
}

// TakeUndecided returns what AskLater noted, oldest first, and forgets it.
func (s *Session) TakeUndecided() []*Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	undecided := s.undecided
	s.undecided = nil
	return undecided
}
