//go:build !race

package proxy

// scrub does nothing to memory that is given back.
func scrub([]byte) {}
