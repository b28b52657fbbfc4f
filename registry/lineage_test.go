package registry_test

import (
	"hash/fnv"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func textHash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// complete makes a turn of a completion: a prompt and the text that goes on with it.
func complete(tb testing.TB, s *registry.Session, prompt, text string) (turn *registry.Turn, asked []int) {
	tb.Helper()
	call := admit(tb, s)
	call.Record(registry.Request{
		Body: []byte(`{"prompt":"` + prompt + `"}`),
		TextPrefixes: func(lengths []int) (prefixes []uint64) {
			asked = slices.Clone(lengths)
			for _, n := range lengths {
				if n <= len(prompt) {
					prefixes = append(prefixes, textHash(prompt[:n]))
				}
			}
			return prefixes
		},
	})
	whole := prompt + text
	return commit(tb, call, registry.Response{
		Status: 200, Choices: []registry.Choice{{Continuation: textHash(whole), TextLength: len(whole)}},
	}), asked
}

func TestTextContinuesTheTurnOfItsLongestBeginning(t *testing.T) {
	s, _ := register(t, newRegistry(t, registry.Options{}), registry.Spec{})
	for i, turn := range []struct {
		prompt, text string
		parent       int
		asked        []int
	}{
		{"a", "bc", -1, nil},
		{"abcd", "ef", 0, []int{3}},
		{"abcdefg", "h", 1, []int{3, 6}},
		{"abcdeX", "", 0, []int{3, 6, 8}},
		{"ab", "", -1, []int{3, 6, 8}},
		{"abcdef", "gh", 1, []int{2, 3, 6, 8}},
	} {
		got, asked := complete(t, s, turn.prompt, turn.text)
		wantParent(t, got, turn.parent)
		if !slices.Equal(asked, turn.asked) {
			t.Errorf("turn %d asks for beginnings of %v bytes, want %v", i, asked, turn.asked)
		}
	}
}

func TestRequestThatNamesItsTurnContinuesThatOne(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	other, _ := register(t, r, registry.Spec{})
	for _, ids := range [][]string{{"resp_1", "msg_1"}, {"resp_2"}, {"resp_3", "msg_1"}} {
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(`{}`)})
		commit(t, call, registry.Response{Status: 200, IDs: ids, Choices: []registry.Choice{{Continuation: 7}}})
	}
	for id, want := range map[string]int{"resp_1": 0, "resp_2": 1, "msg_1": 2} {
		if got, ok := s.Received(id); !ok || got != want {
			t.Errorf("%s was received with turn %d, %v; want %d", id, got, ok, want)
		}
		if _, ok := other.Received(id); ok {
			t.Errorf("%s was received by another session", id)
		}
	}
	if _, ok := s.Received("resp_4"); ok {
		t.Error("an id that nobody gave was received")
	}
	call := admit(t, s)
	call.Record(registry.Request{Body: []byte(`{}`), Follows: new(1), Prefixes: []uint64{7}})
	wantParent(t, commit(t, call, registry.Response{Status: 200}), 1)
}
