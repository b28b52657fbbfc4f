package frpstest

import "syscall"

// endWithParent has the process killed when this one ends, however that is.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
