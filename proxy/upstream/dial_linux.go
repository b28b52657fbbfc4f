package upstream

import "syscall"

// limitSilence sets TCP_USER_TIMEOUT, which package syscall does not name.
func limitSilence(fd uintptr) {
	const tcpUserTimeout = 0x12
	// It fails on what is not TCP, which then goes without.
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silenceTimeout.Milliseconds())) //nolint:gosec // a descriptor
}
