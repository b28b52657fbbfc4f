package registry_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// BenchmarkTurn is what one call of an agent costs here, with a last message that is new, in sessions without and with many turns.
// Run it with -benchtime=12000x: the sessions get longer.
func BenchmarkTurn(b *testing.B) {
	for _, turns := range []int{0, 2000} {
		b.Run(fmt.Sprint("after=", turns), func(b *testing.B) {
			r := newRegistry(b, registry.Options{})
			var agents []*agent
			for i := range 16 {
				s, _ := register(b, r, registry.Spec{ID: fmt.Sprint(i)})
				agents = append(agents, &agent{session: s})
			}
			for range turns {
				for _, a := range agents {
					a.turn(b)
				}
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				agents[i%len(agents)].turn(b)
				i++
			}
		})
	}
}

// agent sends a conversation of a kilobyte again and again, each time with another last message.
type agent struct {
	session *registry.Session
	sent    uint64
}

var unchanged = `[{"role":"system","content":"You are a coding agent."},{"role":"user","content":"` + strings.Repeat("All work and no play. ", 50) + `"},`

func (a *agent) turn(tb testing.TB) {
	tb.Helper()
	a.sent++
	body := fmt.Appendf(make([]byte, 0, 2<<10), `{"model":"m","messages":%s{"role":"user","content":"%08d"}],"temperature":0.7}`, unchanged, a.sent)
	start, end := bytes.IndexByte(body, '['), bytes.LastIndexByte(body, ']')+1
	known := a.session.Known("messages", body[start:end])
	hash := a.sent * 0x9e3779b97f4a7c15
	call, err := a.session.Admit(tb.Context(), registry.CallInfo{
		Dialect: "chat", Route: "/v1/chat/completions", RequestID: fmt.Sprintf("req_%032d", a.sent), Digest: [32]byte{byte(a.sent), byte(a.sent >> 8)},
	})
	if err != nil {
		tb.Fatal(err)
	}
	call.Record(registry.Request{
		Body: body, Model: "m", Shared: []registry.Part{{Key: "messages", Start: start, End: end}}, Known: known, Prefixes: []uint64{1, 2, hash},
		List: registry.List{Field: "messages", Seed: 1, Elements: []registry.Element{{End: 54, Prefix: 1}, {End: len(unchanged) - 1, Prefix: 2}, {End: end - start - 1, Prefix: hash}}},
	})
	if _, err := call.Commit(registry.Response{
		Status: 200, Body: make([]byte, 2<<10), Model: "m", UpstreamRequestID: "req_upstream", Upstream: "default", Replica: "127.0.0.1:8000",
		Usage: &registry.Usage{InputTokens: 400, OutputTokens: 100}, Choices: []registry.Choice{{FinishReason: "stop", Continuation: hash + 1}},
		StartedAt: time.Now(), Duration: time.Millisecond,
	}); err != nil {
		tb.Fatal(err)
	}
	call.Close()
}

// BenchmarkRecord is what it costs to find the parent of a long conversation's turn and to keep what is new of it.
func BenchmarkRecord(b *testing.B) {
	for _, messages := range []int{64, 1024} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			s, _ := register(b, newRegistry(b, registry.Options{}), registry.Spec{})
			c := &conversation{}
			for i := range messages {
				c.say("user", fmt.Sprint(i, strings.Repeat("u", 1000)))
			}
			for range 2000 {
				commit(b, admit(b, s), registry.Response{Choices: []registry.Choice{{Continuation: rand.Uint64()}}})
			}
			request := c.asKnown(s)
			list := request.Body[request.Shared[0].Start:request.Shared[0].End]
			record := func() {
				call := admit(b, s)
				call.Record(request)
				call.Close()
			}
			record()
			b.ReportAllocs()
			for b.Loop() {
				request.Known = s.Known("messages", list)
				record()
			}
		})
	}
}
