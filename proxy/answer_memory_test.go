package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// An answer whose length was not announced takes no more of the memory for traces.
func TestTracesHoldNoMoreThanTheirAnswers(t *testing.T) {
	s := newStack(t)
	for _, size := range []int{1500, 100 << 10, 3 << 20} {
		taken := map[int64]int64{}
		for _, length := range []int64{0, -1} {
			script := scripted.JSON(fmt.Appendf(nil, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}]}`, strings.Repeat("a", size)))
			script.Length = length
			name := fmt.Sprint(size, length)
			s.model.Script(name, script)
			r := s.register(registry.Spec{})
			before := s.registry.Stats().TraceBytes
			if got := r.chat(name, ""); got.StatusCode != http.StatusOK {
				t.Fatalf("status %d, %s", got.StatusCode, got.body)
			}
			r.settle()
			taken[length] = s.registry.Stats().TraceBytes - before
		}
		if taken[-1] > taken[0]*5/4 {
			t.Errorf("an answer of %d bytes takes %d, and %d where its length was not announced", size, taken[0], taken[-1])
		}
	}
}
