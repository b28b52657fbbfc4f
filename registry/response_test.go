package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// answered makes a turn whose response repeats the token ids of its prompt.
func answered(tb testing.TB, s *registry.Session, ids string) (turn *registry.Turn, body string) {
	tb.Helper()
	body = `{"choices":[{"text":"x","token_ids":[7]}],"prompt_token_ids":` + ids + `,"id":"` + fmt.Sprint(len(ids)) + `"}`
	call := admit(tb, s)
	call.Record(registry.Request{Body: []byte(`{"messages":[]}`)})
	return commit(tb, call, registry.Response{Status: 200, Body: []byte(body), Shared: []byte(ids)}), body
}

// Section 7: T turns take memory for T turns, token ids included.
func TestTokenIDsOfPromptsAreSharedBetweenTurns(t *testing.T) {
	const turns, added = 200, 100
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	var ids strings.Builder
	var bodies []string
	whole := 0
	for i := range turns {
		for j := range added {
			fmt.Fprintf(&ids, ",%d", 100_000+i*added+j)
		}
		_, body := answered(t, s, "["+ids.String()[1:]+"]")
		bodies = append(bodies, body)
		whole += len(body)
	}
	for i, want := range bodies {
		turn, err := s.Turn(i)
		if err != nil || string(turn.Response()) != want {
			t.Fatalf("turn %d is not given back as it was received: %v", i, err)
		}
	}
	if got, most := r.Stats().TraceBytes, int64(ids.Len()+turns*3_000); got > most || most > int64(whole)/10 {
		t.Errorf("the trace takes %d bytes of %d; want at most %d", got, whole, most)
	}
}

func TestResponseIsGivenBackWhateverItShares(t *testing.T) {
	s, _ := register(t, newRegistry(t, registry.Options{}), registry.Spec{})
	long := "[" + strings.Repeat("12,", 50) + "1]"
	for _, test := range []struct{ body, shared string }{
		{`{"a":1}`, ``},
		{`{"a":[1]}`, `[1]`},
		{long, long},
		{`{"x":` + long + `}`, long},
		{`{"x":` + long + `}`, "[9" + long[1:]},
		{`{"x":` + long + `,"y":` + long + `}`, long},
		{``, ``},
	} {
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(`{}`)})
		turn := commit(t, call, registry.Response{Status: 200, Body: []byte(test.body), Shared: []byte(test.shared)})
		if got := string(turn.Response()); got != test.body {
			t.Errorf("%s became %s", test.body, got)
		}
	}
}
