package dialect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// links fingerprints messages.
func links(t *testing.T, messages ...string) []uint64 {
	t.Helper()
	r := parse(t, `{"messages":[`+strings.Join(messages, ",")+`]}`)
	return dialect.Chat{}.Conversation(r).Prefixes
}

// same groups messages that a client may write one for the other.
var same = map[string][]string{
	"text": {
		`{"role":"user","content":"Grüße <b> 😀"}`,
		"{ \"content\" :\t\"Gr\\u00fc\\u00dfe \\u003cb\\u003e \\ud83d\\ude00\" , \"role\":\"\\u0075ser\" }",
		`{"role":"user","content":[{"type":"text","text":"Grüße <b> 😀"}]}`,
		`{"role":"user","content":[{"type":"text","text":"Grüße "},{"text":"<b> 😀","type":"text","cache_control":{"type":"ephemeral"}}]}`,
		`{"role":"user","name":"bob","content":"Grüße <b> 😀"}`,
	},
	"no text": {
		`{"role":"assistant","content":null}`,
		`{"role":"assistant"}`,
		`{"role":"assistant","content":""}`,
		`{"role":"assistant","content":[]}`,
		`{"role":"assistant","content":"","tool_calls":[],"refusal":null,"reasoning_content":"hm"}`,
		`{"content":"","tool_calls":null,"function_call":null}`,
	},
	"tool call": {
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1,\"b\":[true,null,\"x\"]}"}}]}`,
		`{"role":"assistant","tool_calls":[{"index":0,"function":{"arguments":"{ \"b\" : [ true, null, \"\\u0078\" ], \"a\" : 1.0 }","name":"f"},"id":"c1"}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1e0,\"b\":[true,null,\"x\"]}"}}]}`,
	},
	"tool result": {
		`{"role":"tool","tool_call_id":"c1","content":"20"}`,
		`{"content":[{"type":"text","text":"20"}],"tool_call_id":"\u00631","role":"tool"}`,
	},
	"image": {
		`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:,x","detail":"low"}}]}`,
		`{"role":"user","content":[{"text":"see","type":"text"},{"image_url":{"detail":"low","url":"data:\u002cx"},"type":"image_url"}]}`,
	},
}

func TestRewrittenMessagesHaveTheSameFingerprint(t *testing.T) {
	for name, messages := range same {
		want := links(t, messages[0])
		for _, message := range messages[1:] {
			if got := links(t, message); !slices.Equal(got, want) {
				t.Errorf("%s: %s\ndiffers from %s", name, message, messages[0])
			}
		}
	}
}

func TestChangedMessagesHaveOtherFingerprints(t *testing.T) {
	tool := func(id, name, arguments string) string {
		return fmt.Sprintf(`{"role":"assistant","tool_calls":[{"id":%q,"function":{"name":%q,"arguments":%q}}]}`, id, name, arguments)
	}
	messages := []string{
		tool("c1", "f", `{"a":1}`), tool("c2", "f", `{"a":1}`), tool("c1", "g", `{"a":1}`), tool("c1f", "", `{"a":1}`),
		tool("c1", "f", `{"a":2}`), tool("c1", "f", `{"a":"1"}`), tool("c1", "f", `{"b":1}`), tool("c1", "f", `{"a":[1]}`), tool("c1", "f", `{"a":{"1":1}}`),
		tool("c1", "f", `{"a":1,"b":1}`), tool("c1", "f", `{"a":[1,2]}`), tool("c1", "f", `{"a":[2,1]}`), tool("c1", "f", `{"a":true}`), tool("c1", "f", `{"a":null}`),
		tool("c1", "f", `{"a":12345678901234567890}`), tool("c1", "f", `{"a":12345678901234567891}`), tool("c1", "f", `{"a":-1}`), tool("c1", "f", `{"a":0.1}`),
		tool("c1", "f", `{}`), tool("c1", "f", `[]`), tool("c1", "f", ``), tool("c1", "f", `{"a":`), tool("c1", "f", `{"a": `),
		`{"role":"user","content":"a"}`, `{"role":"assistant","content":"a"}`, `{"role":"system","content":"a"}`, `{"role":"user","content":"a "}`,
		`{"role":"user","content":"A"}`, `{"role":"usera","content":""}`, `{"role":"tool","content":"a"}`, `{"role":"tool","tool_call_id":"a","content":""}`,
		`{"role":"tool","tool_call_id":"b","content":"a"}`, `{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"b"}}]}`, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"b"}}]}`,
		`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`,
	}
	for _, group := range same {
		messages = append(messages, group[0])
	}
	seen := map[uint64]string{}
	for _, message := range messages {
		link := links(t, message)[0]
		if other, ok := seen[link]; ok {
			t.Errorf("%s\nand %s have the same fingerprint", message, other)
		}
		seen[link] = message
	}
}

// A link depends on all messages before it, their order and their division.
func TestLinksAreChained(t *testing.T) {
	user := func(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }
	abc := links(t, user("a"), user("b"), user("c"))
	if got := links(t, user("a"), user("b")); !slices.Equal(got, abc[:2]) {
		t.Error("the links of a prefix are not the prefix of the links")
	}
	for name, messages := range map[string][]string{
		"order": {user("b"), user("a"), user("c")}, "first": {user("x"), user("b"), user("c")}, "joined": {user("ab"), user(""), user("c")},
		"one less": {user("b"), user("c")}, "one more": {user("a"), user("a"), user("b"), user("c")},
	} {
		if got := links(t, messages...); got[len(got)-1] == abc[2] {
			t.Errorf("%s: the same link", name)
		}
	}
}

// A choice continues the conversation to where the request that gives it back stands.
func TestChoiceContinuesToTheLinkOfTheRequestThatHoldsIt(t *testing.T) {
	for name, messages := range same {
		if name == "text" || name == "tool result" || name == "image" {
			continue // are no answers
		}
		r := parse(t, `{`+hi+`}`)
		conversation := dialect.Chat{}.Conversation(r)
		result, err := dialect.Chat{}.Response([]byte(`{"choices":[{"index":0,"message":`+messages[0]+`}]}`), conversation)
		if err != nil {
			t.Fatal(err)
		}
		for _, again := range messages {
			if got := links(t, `{"role":"user","content":"hi"}`, again); got[1] != result.Choices[0].Continuation {
				t.Errorf("%s: %s does not continue the choice", name, again)
			}
		}
	}
}

// Links are kept by other processes, and so must stay what they are.
func TestLinksAreStable(t *testing.T) {
	got := fmt.Sprintf("%x", links(t, same["text"][0], same["tool call"][0], same["tool result"][0], same["image"][0]))
	if want := stableLinks; got != want {
		t.Errorf("the links are %s, and were %s", got, want)
	}
}

const stableLinks = "[b9a1c0656ed58c02 59f825f107a2d02c dd1d8e148babe3d9 34ea04ae8cc0b157]"
