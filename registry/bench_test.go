package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func BenchmarkLookup(b *testing.B) {
	for _, sessions := range []int{1, 100_000} {
		b.Run(fmt.Sprint("sessions=", sessions), func(b *testing.B) {
			r := newRegistry(b, registry.Options{})
			registrations, err := r.Register(make([]registry.Spec, sessions)...)
			if err != nil {
				b.Fatal(err)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Lookup(registrations[i].Secret); err != nil {
					b.Fatal(err)
				}
				if i++; i == sessions {
					i = 0
				}
			}
		})
	}
}

// BenchmarkCall is what one call costs here, from its admission to its end.
func BenchmarkCall(b *testing.B) {
	b.Run("request=2KB", func(b *testing.B) {
		c := &conversation{}
		c.say("user", strings.Repeat("u", 100))
		benchmarkCalls(b, []registry.Request{c.request()})
	})
	// A conversation that grows to 64 KB in 64 turns, then the next.
	b.Run("request=64KB-growing", func(b *testing.B) {
		c := &conversation{}
		var requests []registry.Request
		for i := range 64 {
			c.say("user", fmt.Sprint(i, strings.Repeat("u", 1000)))
			requests = append(requests, c.request())
		}
		benchmarkCalls(b, requests)
	})
}

func benchmarkCalls(b *testing.B, requests []registry.Request) {
	b.Helper()
	r := newRegistry(b, registry.Options{})
	s, _ := register(b, r, registry.Spec{ID: "0"})
	answer := []byte(strings.Repeat("a", 1000))
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if i++; i%64 == 0 {
			if _, err := r.End(b.Context(), s.ID(), registry.EndOptions{Purge: true}); err != nil {
				b.Fatal(err)
			}
			s, _ = register(b, r, registry.Spec{ID: fmt.Sprint(i)})
		}
		call, err := s.Admit(b.Context(), registry.CallInfo{Dialect: "chat"})
		if err != nil {
			b.Fatal(err)
		}
		call.Record(requests[i%len(requests)])
		if _, err := call.Commit(registry.Response{Status: 200, Body: answer, Usage: &registry.Usage{InputTokens: 1, OutputTokens: 1}}); err != nil {
			b.Fatal(err)
		}
		call.Close()
	}
}

// BenchmarkKnown is what finding out costs how a conversation of 1 MB begins, whose last
// message is another in each request.
func BenchmarkKnown(b *testing.B) {
	r := newRegistry(b, registry.Options{})
	s, _ := register(b, r, registry.Spec{})
	message := `{"role":"user","content":"` + strings.Repeat("m", 1000) + `"},`
	front := "[" + strings.Repeat(message, 1000)
	list := registry.List{Field: "messages", Seed: 1}
	for i := range 1000 {
		list.Elements = append(list.Elements, registry.Element{End: len("[") + (i+1)*len(message) - len(","), Prefix: uint64(i)})
	}
	i := 0
	b.ReportAllocs()
	b.SetBytes(int64(len(front)))
	for b.Loop() {
		b.StopTimer()
		i++
		text := fmt.Appendf(nil, `%s{"role":"user","content":"%07d"}]`, front, i)
		b.StartTimer()
		known := s.Known("messages", text)
		b.StopTimer()
		if i > 1 && len(known.Elements) != len(list.Elements) {
			b.Fatalf("%d elements are known", len(known.Elements))
		}
		call, err := s.Admit(b.Context(), registry.CallInfo{})
		if err != nil {
			b.Fatal(err)
		}
		call.Record(registry.Request{Body: text, Shared: []registry.Part{{Key: "messages", End: len(text)}}, List: list, Known: known})
		if _, err := call.Commit(registry.Response{Status: 200}); err != nil {
			b.Fatal(err)
		}
		call.Close()
		b.StartTimer()
	}
}
