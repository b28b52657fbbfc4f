package registry

import (
	"maps"
	"strings"
)

// maxHookError is how much is kept of what a hook's failure says, in bytes.
const maxHookError = 512

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

// HookAsked notes how a hook was asked last: that of the stop condition of this name, or the user's when it is empty. A nil failure is
// an answer.
func (s *Session) HookAsked(condition string, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if failure == nil {
		delete(s.hookErrors, condition)
		return
	}
	if s.hookErrors == nil {
		s.hookErrors = make(map[string]string)
	}
	text := failure.Error()
	s.hookErrors[condition] = strings.ToValidUTF8(text[:min(len(text), maxHookError)], "")
}

// HookErrors says why hooks had no answer when they were asked last, by the names that HookAsked takes.
func (s *Session) HookErrors() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.hookErrors)
}
