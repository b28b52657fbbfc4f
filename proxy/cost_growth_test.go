//go:build !race

package proxy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// What a request may allocate, at most, over what it allocates alone: maps and
// lists that the trace keeps grow by leaps now and then.
const (
	growthOfAllocations = 2
	growthOfBytes       = 1.10
)

// cost is what a request allocates.
type cost struct{ allocations, bytes float64 }

func (c cost) String() string {
	return fmt.Sprintf("%.1f allocations, %.0f bytes", c.allocations, c.bytes)
}

// costOf is the least of several measurements: whatever else the process does can
// only add.
func costOf(s *bareStack, request []byte) cost {
	const times, n = 5, 200
	// Memory is kept by processor, and made anew where a call goes on on another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	least := cost{1e9, 1e9}
	var before, after runtime.MemStats
	for range times {
		runtime.ReadMemStats(&before)
		for range n {
			s.roundTrip(request)
		}
		runtime.ReadMemStats(&after)
		least.allocations = min(least.allocations, float64(after.Mallocs-before.Mallocs)/n)
		least.bytes = min(least.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
	}
	return least
}

func (c cost) within(t *testing.T, alone cost, what string) {
	t.Helper()
	t.Logf("%s: %v; alone: %v", what, c, alone)
	if c.allocations > alone.allocations+growthOfAllocations || c.bytes > alone.bytes*growthOfBytes {
		t.Errorf("a request costs %v %s; alone %v", c, what, alone)
	}
}

func TestGateCostAmongManySessions(t *testing.T) {
	s := newBareStack(t, overridden(), jsonAnswer(1<<10))
	request := s.lean(2<<10, "")
	costOf(s, request) // what is made once
	alone := costOf(s, request)
	const batch = 1000
	for range 100 {
		specs := make([]registry.Spec, batch)
		for i := range specs {
			specs[i] = overridden()
		}
		if _, err := s.registry.Register(specs...); err != nil {
			t.Fatal(err)
		}
	}
	costOf(s, request).within(t, alone, "among 100,000 sessions")
}

func TestGateCostAfterManyTurnsThatBeginAnew(t *testing.T) {
	s := newBareStack(t, overridden(), jsonAnswer(1<<10))
	request := s.lean(2<<10, "")
	for range 50 {
		s.roundTrip(request)
	}
	alone := costOf(s, request)
	for range 2000 {
		s.roundTrip(request)
	}
	costOf(s, request).within(t, alone, "after 2,000 turns that begin anew")
}

// TestGateCostAfterManyTurnsThatGrow asks what a turn of a conversation of that
// length costs in a session that has all the others, and in one that has none.
func TestGateCostAfterManyTurnsThatGrow(t *testing.T) {
	const turns = 2000
	s := newBareStack(t, overridden(), jsonAnswer(100))
	grown := s.conversation(turns)
	for range 50 {
		s.roundTrip(grown)
	}
	alone := costOf(s, grown)

	s = newBareStack(t, overridden(), jsonAnswer(100))
	for n := range turns {
		s.roundTrip(s.conversation(n + 1))
	}
	costOf(s, s.conversation(turns)).within(t, alone, "after 2,000 turns of the same conversation")
}

// conversation is a request with that many messages of a user, each but the last
// answered.
func (s *bareStack) conversation(messages int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"Be brief."}`)
	for n := range messages {
		if n > 0 {
			b.WriteString(`,{"role":"assistant","content":"word"}`)
		}
		fmt.Fprintf(&b, `,{"role":"user","content":"question %d"}`, n)
	}
	b.WriteString("]}")
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.secret, b.Len(), b.String())
}
