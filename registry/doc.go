// Package registry is the domain of muxproxy: sessions and their secrets, limits, stop conditions, turns and traces.
//
// A [Registry] holds [Session] values. A session stands for one rollout: it is found by its secret, admits model calls one
// by one ([Session.Admit]), and keeps what they turned into. An admitted [Call] has a place reserved under the session's turn
// limit. It is recorded just before it goes upstream ([Call.Record]), becomes a [Turn] ([Call.Commit]) or a failed call
// ([Call.Fail]), and is always closed ([Call.Close]).
//
// A session is active, then stopped (it takes no more turns, and says under which condition), then ended (its secret answers
// with an [EndedError], its trace can still be read). It never goes back. After its trace is gone a tombstone keeps the reason
// and the final summary for a while, so that a late harness learns that its rollout is over and not that its key is wrong.
//
// With a [Journal] what has to outlast the process is written down, and [Registry.Restore] takes it over from there: a turn before it
// is visible, everything that a client is told of before it is told, the rest a moment later. Without one all of it is in memory alone.
//
// # Locks
//
// Registry.mu guards the maps from ids and secrets to sessions, and nothing else. Session.mu guards one session. They are never
// held together. The locks of gates, of the schedule and of a trace's store are leaves: they may be taken under either, and
// nothing is taken under them. [Journal.Submit] may be called under Session.mu, so that a session's entries are in order; the journal calls
// back with no lock held. No lock is held while something waits, and none while caller code runs, but for the one that
// puts the updates of one session in line.
package registry
