package registry

import "maps"

// Stats is the state of a registry at one moment.
type Stats struct {
	Sessions      map[State]int    // that can be listed: ended ones have a trace
	Registered    int64            // sessions since the start
	Ended         map[string]int64 // by reason, since the start
	Inflight      int              // admitted calls that have not been closed
	Waiting       int              // calls that wait to be admitted
	TraceBytes    int64
	EvictedTraces int64 // for want of memory, since the start
}

// Stats returns the state of the registry. Its cost grows with the number of sessions.
func (r *Registry) Stats() Stats {
	stats := Stats{
		Sessions:   map[State]int{StateActive: 0, StateStopped: 0, StateEnded: 0},
		Inflight:   int(r.inflight.Load()),
		Waiting:    int(r.waiting.Load()),
		TraceBytes: r.memory.bytes.Load(),
	}
	r.mu.RLock()
	sessions := r.order.before(noCursor, len(r.order.sessions))
	stats.Registered, stats.EvictedTraces = r.registered, r.evicted
	stats.Ended = maps.Clone(r.reasons)
	r.mu.RUnlock()
	for _, s := range sessions {
		stats.Sessions[s.State()]++
	}
	return stats
}
