//go:build !race

package nonblock_test

import (
	"io"
	"testing"

	"github.com/muxproxy/muxproxy/nonblock"
)

func TestAskingAllocatesNothing(t *testing.T) {
	peer, conn := dialled(t)
	b, r := make([]byte, 5), request{make(chan struct{}, 200)}
	var asked nonblock.Request = r
	go func() { _, _ = io.CopyBuffer(struct{ io.Writer }{peer}, struct{ io.Reader }{peer}, make([]byte, 5)) }()
	if n := testing.AllocsPerRun(100, func() {
		_, _ = nonblock.Ask(conn, b, asked)
		_, _ = io.ReadFull(conn, b)
	}); n > 0 {
		t.Errorf("got %v allocations", n)
	}
}
