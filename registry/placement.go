package registry

// Placement says on which server a session is and how that is reached. Generation counts the endpoints it has had.
type Placement struct {
	Server     string
	URL        string
	Generation int
}

// EndpointLoss says what becomes of a session whose endpoint is lost for good.
type EndpointLoss string

// What can become of it. The zero value is EndpointLossStop: a harness that knows only the lost endpoint cannot go on, and whoever
// waits for it should learn that at once.
const (
	EndpointLossStop EndpointLoss = "stop" // it stops with [ConditionTunnelLost]
	EndpointLossKeep EndpointLoss = "keep" // it gets another endpoint, which its harness must be told
)

// Move notes where the session is from now on. A placement that is no newer than the one it has, by its generation, changes nothing:
// moves may be noted out of order. The error is an [EndedError].
func (s *Session) Move(to Placement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.ended.Load(); ended != nil {
		return ended
	}
	if to.Generation <= s.spec.Placement.Generation {
		return nil
	}
	next := *s.spec
	next.Placement = to
	s.spec = &next
	s.noteSpec()
	return nil
}
