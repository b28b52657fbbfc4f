//go:build !linux

package ssh

import (
	"context"
	"net"
	"syscall"
)

// control is done on Linux alone.
func control(context.Context, string, string, syscall.RawConn) error { return nil }

// acknowledge is done on Linux alone.
func acknowledge(net.Conn) {}
