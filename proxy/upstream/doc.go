// Package upstream sends calls to the model APIs that muxproxy stands in front
// of.
//
// An [Upstream] is a named API with one or more replicas. Calls of one affinity
// stay on one replica, so that its prefix cache is warm, unless it is out or
// carries more than its share. A replica is taken out when it cannot be
// connected to, when it answers five calls in a row with a 5xx or a broken
// connection, or when its /health fails three times; it comes back by itself.
// Slow answers, 4xx, 429 and clients that leave never count against it. When
// failed calls alone have taken out all replicas, calls go to them all the same:
// one rollout's errors must not take the upstream from the others.
//
// A call is moved to another replica, or sent again on another connection, only
// as long as not one byte of it was written: afterwards a generation may have
// begun, and the failure is the caller's to report. What an HTTP/2 replica gives back
// as not begun net/http sends again: streams behind a GOAWAY or reset as refused, and
// also with PROTOCOL_ERROR, which it takes for that.
//
// Replicas that are reached directly and without encryption are spoken to in
// HTTP/1.1 by this package itself, which costs less than half of what net/http's
// transport does; it has all others.
//
// A [Set] holds all upstreams and can be changed while calls run.
package upstream
