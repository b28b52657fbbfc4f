package rawjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

const chunk = `{"id":"chatcmpl-8f2c1e6a9b3d4c5f","object":"chat.completion.chunk","created":1764512345,"model":"Qwen/Qwen3-8B",` +
	`"choices":[{"index":0,"delta":{"content":" the"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`

// conversation is a chat request of about size bytes, as coding agents send
// them: prose, code full of escapes, tool calls.
func conversation(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"Qwen/Qwen3-8B","temperature":1.0,"messages":[{"role":"system","content":"You are a coding agent."}`)
	for i := 0; b.Len() < size-300; i++ {
		switch i % 3 {
		case 0:
			b.WriteString(`,{"role":"user","content":"`)
			b.WriteString(strings.Repeat("Please look at the failing test and explain what it expects. ", min(20, size/500)))
		case 1:
			fmt.Fprintf(&b, `,{"role":"assistant","content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"bash","arguments":"{\"command\":\"go test ./...\"}"}}],"reasoning":"`, i)
		case 2:
			fmt.Fprintf(&b, `,{"role":"tool","tool_call_id":"call_%d","content":"`, i-1)
			b.WriteString(strings.Repeat(`\tif err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", name, err)\n\t}\n`, min(20, size/500)))
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"stream":true,"max_tokens":2048}`)
	return []byte(b.String())
}

type namedText struct {
	name string
	text []byte
}

func texts() []namedText {
	return []namedText{
		{"chunk", []byte(chunk)},
		{"2KB", conversation(2 << 10)},
		{"1MB", conversation(1 << 20)},
		{"1MB-string", []byte(`{"model":"m","input":"` + strings.Repeat("abcdefgh", 1<<17) + `"}`)},
		{"1MB-token-ids", []byte(`{"prompt_token_ids":[0` + strings.Repeat(",12,3456,151643", 1<<16) + `]}`)},
	}
}

func BenchmarkParseObject(b *testing.B) {
	for _, tt := range texts() {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(int64(len(tt.text)))
			b.ReportAllocs()
			members := make([]rawjson.Member, 0, 16)
			for b.Loop() {
				if _, err := rawjson.ParseObject(tt.text, members); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What the standard library's validation alone costs, for comparison.
func BenchmarkEncodingJSONValid(b *testing.B) {
	for _, tt := range texts() {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(int64(len(tt.text)))
			b.ReportAllocs()
			for b.Loop() {
				if !json.Valid(tt.text) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	edits := []rawjson.Edit{
		{Key: "model", Value: []byte(`"another"`)},
		{Key: "temperature", Value: []byte(`0.7`)},
		{Key: "stream_options", Value: []byte(`{"include_usage":true}`)},
	}
	for _, tt := range texts() {
		b.Run(tt.name, func(b *testing.B) {
			o := parse(b, string(tt.text))
			b.SetBytes(int64(len(tt.text)))
			b.ReportAllocs()
			for b.Loop() {
				o.Apply(edits)
			}
		})
	}
}

func BenchmarkWith(b *testing.B) {
	o := parse(b, string(conversation(2<<10)))
	edits := []rawjson.Edit{{Key: "model", Value: []byte(`"another"`)}, {Key: "seed", Value: []byte(`1`)}}
	b.ReportAllocs()
	for b.Loop() {
		o.With(edits)
	}
}

func BenchmarkSkip(b *testing.B) {
	for _, tt := range texts() {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(int64(len(tt.text)))
			b.ReportAllocs()
			for b.Loop() {
				rawjson.Lookup(tt.text, "absent")
			}
		})
	}
}

// A walk over the content of every message.
func BenchmarkElements(b *testing.B) {
	for _, tt := range []namedText{{"2KB", conversation(2 << 10)}, {"1MB", conversation(1 << 20)}} {
		b.Run(tt.name, func(b *testing.B) {
			messages := rawjson.Lookup(tt.text, "messages")
			b.SetBytes(int64(len(messages)))
			b.ReportAllocs()
			for b.Loop() {
				for message := range rawjson.Elements(messages) {
					rawjson.Lookup(message, "content")
				}
			}
		})
	}
}

// The fields that a relay looks at in every event.
func BenchmarkChunkFields(b *testing.B) {
	text := []byte(chunk)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		rawjson.Lookup(text, "usage")
		for choice := range rawjson.Elements(rawjson.Lookup(text, "choices")) {
			rawjson.Lookup(choice, "finish_reason")
			rawjson.Lookup(rawjson.Lookup(choice, "delta"), "content")
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	raw := rawjson.Quote(nil, strings.Repeat("if err != nil {\n\treturn \"x\"\n}\n", 40))
	dst := make([]byte, 0, len(raw))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		rawjson.AppendString(dst, raw)
	}
}
