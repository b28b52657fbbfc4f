package registry_test

import (
	"context"
	"fmt"

	"github.com/muxproxy/muxproxy/registry"
)

func Example() {
	ctx := context.Background()
	sessions, err := registry.New(registry.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registered, err := sessions.Register(registry.Spec{ID: "gsm8k-0042", Limits: registry.Limits{MaxTurns: new(int64(1))}})
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := sessions.Lookup(registered[0].Secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	call, err := session.Admit(ctx, registry.CallInfo{Dialect: "chat"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer call.Close()
	call.Record(registry.Request{Body: []byte(`{"model":"m","messages":[]}`), Model: "m"})
	turn, err := call.Commit(registry.Response{Status: 200, Usage: &registry.Usage{InputTokens: 12, OutputTokens: 3}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("turn %d sent %s\n", turn.Index, turn.Request())
	_, err = session.Admit(ctx, registry.CallInfo{Dialect: "chat"})
	fmt.Println(err)
	// Output:
	// turn 0 sent {"model":"m","messages":[]}
	// session stopped: max_turns
}
