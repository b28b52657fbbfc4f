package dialect_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// escaped is a valid text with every character of its strings as an escape. A
// name is left alone if it is not UTF-8: names are not made valid.
func escaped(text []byte) []byte {
	var all []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			all = append(all, text[i])
			continue
		}
		end := i + 1
		for text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		raw := text[i : end+1]
		i = end
		if !utf8.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(text[end+1:], " \t\r\n"), []byte(":")) {
			all = append(all, raw...)
			continue
		}
		s, _ := rawjson.String(raw)
		all = append(all, '"')
		for _, unit := range utf16.Encode([]rune(s)) {
			all = fmt.Appendf(all, `\u%04X`, unit)
		}
		all = append(all, '"')
	}
	return all
}

// Requests in the spelling that is hashed as it is and in one that has to be
// respelled are the same conversation.
func FuzzRespelledRequestsAreTheSameConversation(f *testing.F) {
	for _, messages := range same {
		for _, message := range messages {
			f.Add([]byte(`{"messages":[` + message + `],"input":[` + message + `]}`))
		}
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a\n"},{"type":"text","text":"\ud83d"},{"type":"text","text":"\ude00` + "\xff" + `"}]}],"input":"a\/\u001f"}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"\\","name":"n","input":{"a\"":["\t",1.0,-0]}},{"type":"tool_result","tool_use_id":"x","content":"é"}]}]}`))
	f.Add([]byte(`{"input":[{"type":"function_call","call_id":"c","name":"n","arguments":"{\"a\":\"\\n\"}"},{"type":"function_call_output","call_id":"c","output":"o\n"},{"id":"x\t"},{"type":"other","a":"é"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []dialect.Dialect{dialect.Chat{}, dialect.Messages{}, dialect.Responses{}} {
			r, err := d.Parse(body, nil)
			if err != nil {
				continue
			}
			again, err := d.Parse(escaped(body), nil)
			if err != nil {
				t.Fatalf("%s: %q respelled: %v", d.Name(), body, err)
			}
			if want, got := d.Conversation(r).Prefixes, d.Conversation(again).Prefixes; !slices.Equal(got, want) {
				t.Errorf("%s: %q respelled is another conversation", d.Name(), body)
			}
		}
	})
}
