package registry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// asKnown is the conversation's request as the data plane makes it: with where its messages end, and what the session knows of them.
func (c *conversation) asKnown(s *registry.Session) registry.Request {
	request := c.request()
	messages := request.Body[request.Shared[0].Start:request.Shared[0].End]
	request.Known = s.Known("messages", messages)
	request.List = registry.List{Field: "messages", Seed: 1}
	end := 0
	for i, message := range c.messages {
		end += 1 + len(message)
		request.List.Elements = append(request.List.Elements, registry.Element{End: end, Prefix: c.hashes[i]})
	}
	return request
}

// Agents go on with, repeat, fork and give up conversations, several of which are in flight at a time: the parent is the newest turn that
// the longest beginning continues, whatever is known of the request before.
func TestParentOfAKnownBeginningIsThatOfAnUnknownOne(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
		s, _ := register(t, newRegistry(t, registry.Options{}), registry.Spec{})
		continued := map[uint64]int{}
		known := 0
		type flight struct {
			call   *registry.Call
			c      *conversation
			parent int
		}
		var flights []flight
		first := &conversation{}
		first.say("system", strings.Repeat("x", 200))
		agents := []*conversation{first}
		for range 300 {
			switch n := rng.IntN(10); {
			case n < 4 && len(flights) > 0:
				i := rng.IntN(len(flights))
				f := flights[i]
				flights = slices.Delete(flights, i, i+1)
				f.c.say("assistant", fmt.Sprint("answer", rng.IntN(3)))
				hash := f.c.hashes[len(f.c.hashes)-1]
				turn := commit(t, f.call, registry.Response{Status: 200, Choices: []registry.Choice{{}, {Continuation: hash}}})
				continued[hash] = turn.Index
				wantParent(t, turn, f.parent)
				agents = append(agents, f.c)
			case n < 5 && rng.IntN(4) == 0:
				agents = agents[len(agents)/2:]
			default:
				c := agents[rng.IntN(len(agents))]
				if rng.IntN(3) > 0 {
					c = agents[len(agents)-1]
				}
				c = c.fork()
				if rng.IntN(4) > 0 {
					c.say("user", fmt.Sprint("question", rng.IntN(3)))
				}
				parent := -1
				for _, hash := range c.hashes {
					if turn, ok := continued[hash]; ok {
						parent = turn
					}
				}
				request := c.asKnown(s)
				known += len(request.Known.Elements)
				call := admit(t, s)
				call.Record(request)
				flights = append(flights, flight{call, c, parent})
			}
		}
		if known == 0 {
			t.Error("nothing was known of any request")
		}
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}
