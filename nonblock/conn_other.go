//go:build !linux || race

package nonblock

import "net"

// Conn gives the connection back: system calls are made otherwise elsewhere, and
// only by those of package syscall does the race detector know what happened
// before what.
func Conn(c net.Conn) net.Conn { return c }

// Await does not wait, because there is no such connection.
func Await(net.Conn) {}
