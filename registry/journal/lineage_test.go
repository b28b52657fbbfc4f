package journal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

// What shows that a request continues a turn, and the token ids that turns
// share, are there again after the process has died.
func TestRestartKeepsWhatTurnsShareAndAreKnownBy(t *testing.T) {
	s := start(t, t.TempDir())
	session, secret := s.register(t, registry.Spec{Capture: registry.Capture{TokenIDs: true}})
	var want []string
	var ids strings.Builder
	ids.WriteString("1")
	for i := range 5 {
		ids.WriteString(strings.Repeat(fmt.Sprintf(",%d", 1000+i), 40))
		want = append(want, `{"prompt_token_ids":[`+ids.String()+`],"id":"resp"}`)
		call := admit(t, session)
		call.Record(registry.Request{Body: []byte(`{"prompt":"a"}`)})
		if _, err := call.Commit(registry.Response{
			Status: 200, Body: []byte(want[i]), Shared: []byte("[" + ids.String() + "]"), IDs: []string{fmt.Sprint("resp_", i), "msg_1"},
			Choices: []registry.Choice{{Continuation: uint64(i + 1), TextLength: 10 + i}},
		}); err != nil {
			t.Fatal(err)
		}
		call.Close()
	}

	after := start(t, s.die(t))
	again, err := after.Lookup(secret)
	if err != nil {
		t.Fatal(err)
	}
	for i, turn := range traceOf(t, again).Turns {
		if string(turn.Response()) != want[i] {
			t.Errorf("the response of turn %d is %s, want %s", i, turn.Response(), want[i])
		}
	}
	for id, index := range map[string]int{"resp_0": 0, "resp_4": 4, "msg_1": 4} {
		if got, ok := again.Received(id); !ok || got != index {
			t.Errorf("%s was received with turn %d, %v; want %d", id, got, ok, index)
		}
	}
	if !again.Settings().Capture.TokenIDs {
		t.Error("the session captures no token ids any more")
	}
	call := admit(t, again)
	defer call.Close()
	var asked []int
	call.Record(registry.Request{Body: []byte(`{"prompt":"b"}`), TextPrefixes: func(lengths []int) []uint64 {
		asked = lengths
		return []uint64{3}
	}})
	turn, err := call.Commit(registry.Response{Status: 200})
	if err != nil || turn.Parent == nil || *turn.Parent != 2 || len(asked) != 5 || asked[4] != 14 {
		t.Errorf("the turn is %+v, %v; it was asked for the lengths %v", turn, err, asked)
	}
	after.end(t, again.ID())
}
