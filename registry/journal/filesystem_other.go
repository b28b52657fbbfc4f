//go:build !linux

package journal

// networkFileSystem is known on Linux only.
func networkFileSystem(string) string { return "" }
