//go:build !linux || race

package nonblock

import (
	"context"
	"net"
)

// Conn gives the connection back: system calls are made otherwise elsewhere, and
// only by those of package syscall does the race detector know what happened
// before what.
func Conn(c net.Conn) net.Conn { return c }

// Listen gives the listener back, as Conn does.
func Listen(l net.Listener) net.Listener { return l }

// Context gives ctx back, because there is no such connection.
func Context(ctx context.Context, _ net.Conn) context.Context { return ctx }

// AfterLeave is [context.AfterFunc].
func AfterLeave(ctx context.Context, f func()) (stop func() bool) { return context.AfterFunc(ctx, f) }
