package journal_test

import (
	"fmt"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
)

// BenchmarkTurn is what a turn of 2 KB, half of which is new, costs with so many sessions at a time.
func BenchmarkTurn(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, parallel := range []int{1, 32} {
			b.Run(fmt.Sprintf("fsync=%v/sessions=%d", sync, parallel), func(b *testing.B) {
				s := startWith(b, journal.Options{Dir: b.TempDir(), Sync: sync}, registry.Options{})
				b.SetParallelism(parallel)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					session, _ := s.register(b, registry.Spec{})
					var c conversation
					c.say("system", noise(1000))
					answer := noise(1000)
					for pb.Next() {
						c.messages = c.messages[:1]
						c.say("user", noise(1000))
						c.turn(b, session, answer)
					}
				})
			})
		}
	}
}

// BenchmarkEndedTurns is what it costs to read all turns of an ended session one by one, with what was sent and received.
func BenchmarkEndedTurns(b *testing.B) {
	for _, turns := range []int{100, 400} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			s := start(b, b.TempDir())
			session, _ := s.register(b, registry.Spec{ID: "a"})
			var c conversation
			c.say("system", noise(5000))
			for range turns {
				c.say("user", noise(500))
				c.turn(b, session, noise(500))
			}
			s.end(b, "a")
			b.ReportAllocs()
			for b.Loop() {
				for i := range turns {
					turn, err := session.Turn(i)
					if err != nil {
						b.Fatal(err)
					}
					if len(turn.Request()) == 0 || len(turn.Response()) == 0 {
						b.Fatalf("turn %d is empty", i)
					}
				}
			}
		})
	}
}
