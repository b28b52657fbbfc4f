package ledger_test

import (
	"fmt"
	"os"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

func Example() {
	dir, _ := os.MkdirTemp("", "ledger")
	defer func() { _ = os.RemoveAll(dir) }()

	crashed, _ := ledger.Open(dir)
	_ = crashed.Record("registration", "tun-1", nil)
	_ = crashed.Close() // as the kernel does when the process dies

	next, _ := ledger.Open(dir)
	orphans, _ := next.Orphans("registration")
	for _, o := range orphans {
		fmt.Println("clean up", o.ID)
		_ = o.Done()
	}
	_ = next.Close()
	// Output: clean up tun-1
}
