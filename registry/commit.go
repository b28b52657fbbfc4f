package registry

import (
	"cmp"
)

// Record keeps the request as it goes upstream, byte for byte, and finds its parent among the turns. It is called just before the call
// is dispatched; called again, because something else goes upstream after all, it replaces what it kept.
// The body is the caller's again afterwards.
func (c *Call) Record(request Request) {
	s := c.session
	added := s.store.addListed(request.Body, request.Shared, request.List, request.Known)
	if request.TextPrefixes != nil {
		request.Prefixes = request.TextPrefixes(s.textLengths())
	}
	s.store.release(c.keep(added, &request))
	s.registry.reclaim()
}

// keep makes added the call's request and returns the record that nobody needs any more.
func (c *Call) keep(added *record, request *Request) (spare *record) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase != callInflight {
		return added
	}
	spare, c.request = c.request, added
	c.model, c.added = request.Model, request.Added
	c.parent = noParent
	if request.Follows != nil {
		c.parent = *request.Follows
	} else if added.origin = s.origin(request); added.origin.depth > 0 {
		c.parent = int(added.origin.turn)
	}
	if s.registry.journals() {
		c.noteStarted()
	}
	return spare
}

// Commit makes the call a turn: it is counted and can be read when Commit returns, and a stop condition that it meets, or a limit that
// a call was refused for, has stopped the session. The error is [ErrSealed] if the session's end did not wait for it, or if the
// call is a turn or a failed call already.
func (c *Call) Commit(response Response) (*Turn, error) {
	s := c.session
	condition := matched(s.conditions, response.Choices)
	turn := c.turn(&response)
	s.store.keep(turn, response.Shared)
	written, err := s.commit(c, turn, condition)
	if err != nil {
		s.store.release(turn.shared)
		return nil, err
	}
	if written != nil {
		if err := written.wait(); err != nil {
			return nil, err
		}
	}
	s.store.grow(cap(turn.response))
	s.registry.reclaim()
	return turn, nil
}

// commit makes the call a turn, or if there is a journal begins to: the turn is written before anything can see it.
func (s *Session) commit(c *Call, turn *Turn, condition string) (*commitment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase != callInflight {
		return nil, ErrSealed
	}
	if turn.request, turn.Added = c.request, c.added; c.parent != noParent {
		turn.parent = c.parent
		turn.Parent = &turn.parent
	}
	turn.Model = cmp.Or(c.model, turn.Model)
	if s.registry.journals() {
		return s.submit(c, turn, condition)
	}
	s.publish(c, turn, condition)
	return nil, nil //nolint:nilnil // there is nothing to wait for
}

// turn makes a turn of what is known before it has its place.
func (c *Call) turn(response *Response) *Turn {
	choices := response.Choices
	for i := range choices {
		choices[i].Text = nil
	}
	return &Turn{
		Dialect: c.info.Dialect, Route: c.info.Route, RequestID: c.info.RequestID, Attempt: c.info.Attempt, Digest: c.info.Digest,
		Model: response.Model, UpstreamRequestID: response.UpstreamRequestID,
		Upstream: response.Upstream, Replica: response.Replica,
		Status: response.Status, response: response.Body, Stream: response.Stream, Choices: choices, IDs: response.IDs,
		Usage: response.Usage, WeightVersion: response.WeightVersion,
		StartedAt: response.StartedAt, TimeToFirstEvent: response.TimeToFirstEvent, Duration: response.Duration,
	}
}

// publish gives the turn its place in the trace.
func (s *Session) publish(c *Call, turn *Turn, condition string) {
	c.phase = callRecorded
	s.reserved--
	s.take(turn)
	s.read.Store(false)
	switch {
	case condition != "" && s.state == StateActive:
		s.stop(condition, false)
	case s.refusedTurn && s.state == StateActive && s.limitReached() == LimitTurns:
		s.stop(LimitTurns, false)
	}
	s.settle()
}

// take puts the turn at the end of the trace.
func (s *Session) take(turn *Turn) {
	turn.Index = len(s.turns)
	s.count(turn)
	s.turns = append(s.turns, turn)
	s.lineage.add(turn)
}

// count adds the turn to the session's totals.
func (s *Session) count(turn *Turn) {
	if turn.Parent != nil && *turn.Parent < len(s.turns) {
		turn.contextTokens = s.turns[*turn.Parent].contextTokens
	}
	if u := turn.Usage; u != nil {
		s.usage.InputTokens += max(0, u.InputTokens-turn.contextTokens)
		s.usage.OutputTokens += u.OutputTokens
		s.usage.CachedTokens += u.CachedTokens
		s.usage.ReasoningTokens += u.ReasoningTokens
		s.usage.BilledInputTokens += u.InputTokens
		turn.contextTokens = u.InputTokens + u.OutputTokens
		s.lastContext = turn.contextTokens
	}
	s.modelTime += turn.Duration
	s.versions.add(turn.WeightVersion.Start)
	s.versions.add(turn.WeightVersion.End)
}

// Fail makes the call a failed one. Its turn is free for another. It does nothing if the call is a turn or a failed call already.
func (c *Call) Fail(failure Failure) {
	s := c.session
	s.mu.Lock()
	if c.phase != callInflight {
		s.mu.Unlock()
		return
	}
	added, dropped := s.fail(c, failure)
	s.mu.Unlock()
	s.store.exchange(added, dropped)
	s.registry.reclaim()
}

// fail writes a failed call down. It returns it, and the one it took the place of if there is one.
func (s *Session) fail(c *Call, failure Failure) (added, dropped *FailedCall) {
	added = &FailedCall{
		Dialect: c.info.Dialect, Route: c.info.Route, RequestID: c.info.RequestID, Attempt: c.info.Attempt, Digest: c.info.Digest,
		Model: c.model, UpstreamRequestID: failure.UpstreamRequestID, Upstream: failure.Upstream, Replica: failure.Replica,
		Error:    CallError{Kind: failure.Kind, Status: failure.Status, Message: failure.Message},
		Received: failure.Received, request: c.request,
		StartedAt: failure.StartedAt, TimeToFirstEvent: failure.TimeToFirstEvent, Duration: failure.Duration,
	}
	dropped = s.failures.add(added)
	s.lastError = new(added.Error)
	s.modelTime += failure.Duration
	s.read.Store(false)
	s.giveBack(c)
	if s.registry.journals() {
		s.noteFailed(c, added)
	}
	return added, dropped
}

// giveBack frees the turn that was reserved for a call.
func (s *Session) giveBack(c *Call) {
	c.phase = callRecorded
	s.reserved--
	s.refusedTurn = false
	s.settle()
}
