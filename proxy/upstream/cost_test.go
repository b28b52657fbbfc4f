//go:build !race

package upstream_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// A call takes no goroutine and few allocations, those of its answer included. The race
// detector adds to them, and under it connections are not the daemon's.
func TestCostOfACall(t *testing.T) {
	const size = 2 << 10
	config := replicas(rawServer(t, func(_ int, conn net.Conn) { answerRequestsOf(conn, size) }))
	set, u := newUpstream(t, upstream.Options{}, config)
	defer set.Close()
	body := []byte(repeat("x", size))
	buffer := make([]byte, size)
	before := 0
	allocations := testing.AllocsPerRun(200, func() {
		r := chat("")
		r.Body = body
		res, err := u.Send(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = res.Body.Read(buffer)
		}
		_ = res.Body.Close()
		if now := runtime.NumGoroutine(); before == 0 {
			before = now
		} else if now != before {
			t.Errorf("%d goroutines, %d before", now, before)
		}
	})
	if allocations > 11 {
		t.Errorf("%v allocations a call, want at most 11", allocations)
	}
}
