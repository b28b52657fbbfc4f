// Package nonblock makes short reads and writes of TCP connections without
// telling Go's scheduler, and knows without a goroutine for each of them when
// their peers leave.
//
// A system call may block, so package syscall announces each one. The first
// after the process was idle wakes the runtime's monitor thread, which then
// looks every 20 µs whether the call has come back: where events trickle in,
// that took a fifth of the processor time of relaying them. But the sockets of
// package net do not block; who has to wait does so in the poller. Deadlines,
// errors and closing are those of package net.
//
// A request that is written to a connection which is idle, and the wait for its
// answer, are one step of the poller.
package nonblock
