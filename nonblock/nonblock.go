// Package nonblock makes short reads and writes of TCP connections without
// telling Go's scheduler.
//
// A system call may block, so package syscall announces each one. The first
// after the process was idle wakes the runtime's monitor thread, which then
// looks every 20 µs whether the call has come back: where events trickle in,
// that took a fifth of the processor time of relaying them. But the sockets of
// package net do not block; who has to wait does so in the poller. Deadlines,
// errors and closing are those of package net.
package nonblock

import "net"

// Listen makes the connections that l accepts such ones.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Conn(c), nil
}
