//go:build !linux

package frpstest

import "syscall"

// endWithParent is what only Linux can do: elsewhere Stop has to be called.
func endWithParent() *syscall.SysProcAttr { return nil }
