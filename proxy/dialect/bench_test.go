package dialect_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// A body is a kind of request that costs differently from others.
type body struct {
	name    string
	message string // one of about a kilobyte, or of all of the size if long
	long    bool
}

func bodies() []body {
	user := func(unit string) string {
		return `{"role":"user","content":"` + strings.Repeat(unit, max(1, (1<<10)/len(unit)-1)) + `"}`
	}
	return []body{
		{name: "prose", message: user(`All work and no play makes a dull day.\n`)},
		{name: "plain", message: user(`All work and no play makes a dull day, `)},
		{name: "long", message: user(`All work and no play makes a dull day.\n`), long: true},
		{name: "utf8", message: user(`Übung macht den Meister, 熟能生巧。\n`)},
		{name: "ascii", message: user(`\u00dcbung macht den Meister, \u719f\u80fd\u751f\u5de7\u3002\n`)},
		{name: "code", message: user(`\tif err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", name, err)\n\t}\n`)},
		{name: "tools", message: `{"role":"assistant","content":null,"tool_calls":[{"id":"call_8f2c1e","type":"function","function":` +
			`{"name":"bash","arguments":"{\"command\":\"go test ./...\",\"timeout\":120}"}}]},` +
			`{"role":"tool","tool_call_id":"call_8f2c1e","content":"ok  \tgithub.com/muxproxy/muxproxy/proxy\t0.5s\n"}`},
	}
}

// request is a chat of about size bytes.
func (b body) request(size int) []byte {
	var text strings.Builder
	text.WriteString(`{"model":"Qwen/Qwen3-8B","messages":[{"role":"system","content":"You are a coding agent."}`)
	message := b.message
	if b.long {
		head, rest, _ := strings.Cut(message, `"content":"`)
		unit := strings.TrimSuffix(rest, `"}`)
		message = head + `"content":"` + strings.Repeat(unit, max(1, size/len(unit)-1)) + `"}`
	}
	for text.Len()+len(message) < size {
		text.WriteString(`,` + message)
	}
	text.WriteString(`],"temperature":0.7,"stream":false}`)
	return []byte(text.String())
}

// answer is one of about size bytes.
func answer(size int) []byte {
	return fmt.Appendf(nil, `{"id":"chatcmpl-8f2c1e6a9b3d4c5f","object":"chat.completion","created":1764512345,"model":"Qwen/Qwen3-8B",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":512,"total_tokens":1024,"completion_tokens":512,"prompt_tokens_details":{"cached_tokens":128}}}`,
		strings.Repeat(`All work and no play makes a dull day.\n`, size/40))
}

func forAllBodies(b *testing.B, run func(b *testing.B, request []byte)) {
	b.Helper()
	for _, body := range bodies() {
		for _, size := range []struct {
			name  string
			bytes int
		}{{"2KB", 2 << 10}, {"64KB", 64 << 10}, {"1MB", 1 << 20}} {
			b.Run(body.name+"/"+size.name, func(b *testing.B) {
				request := body.request(size.bytes)
				b.SetBytes(int64(len(request)))
				b.ReportAllocs()
				run(b, request)
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	forAllBodies(b, func(b *testing.B, request []byte) {
		b.Helper()
		for b.Loop() {
			if _, err := (dialect.Chat{}).Parse(request, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkConversation(b *testing.B) {
	forAllBodies(b, func(b *testing.B, request []byte) {
		b.Helper()
		r, err := dialect.Chat{}.Parse(request, nil)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			dialect.Chat{}.Conversation(r)
		}
	})
}

// The other formats, each with a list of texts and one of tool calls.
func BenchmarkConversationOfOtherFormats(b *testing.B) {
	const field, size = "messages", 64 << 10
	prose := bodies()[0]
	blocks := body{message: `{"role":"assistant","content":[{"type":"text","text":"Let me see.\n"},{"type":"tool_use","id":"toolu_8f2c1e","name":"bash","input":` +
		`{"command":"go test ./...","timeout":120}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_8f2c1e","content":"ok\t0.5s\n"}]}`}
	items := body{message: `{"type":"function_call","id":"fc_1","call_id":"call_8f2c1e","name":"bash","arguments":"{\"command\":\"go test ./...\",\"timeout\":120}"},` +
		`{"type":"function_call_output","call_id":"call_8f2c1e","output":"ok\t0.5s\n"}`}
	for _, tt := range []struct {
		name    string
		dialect dialect.Dialect
		field   string
		body    body
	}{
		{"messages/prose", dialect.Messages{}, field, prose},
		{"messages/tools", dialect.Messages{}, field, blocks},
		{"responses/prose", dialect.Responses{}, "input", prose},
		{"responses/tools", dialect.Responses{}, "input", items},
	} {
		b.Run(tt.name, func(b *testing.B) {
			request := bytes.Replace(tt.body.request(size), []byte(field), []byte(tt.field), 1)
			r, err := tt.dialect.Parse(request, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			for b.Loop() {
				tt.dialect.Conversation(r)
			}
		})
	}
}

// Prompts of a megabyte: the hash of all, and those of two of its beginnings.
func BenchmarkPrompt(b *testing.B) {
	for name, prompt := range map[string]string{
		"text": `"` + strings.Repeat(`All work and no play makes a dull day.\n`, 1<<20/40) + `"`,
		"ids":  `[0` + strings.Repeat(`,12,3456,151643`, 1<<16) + `]`,
	} {
		b.Run(name, func(b *testing.B) {
			r, err := dialect.Completions{}.Parse([]byte(`{"prompt":`+prompt+`}`), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(prompt)))
			b.ReportAllocs()
			for b.Loop() {
				dialect.Completions{}.Conversation(r).TextPrefixes()([]int{1 << 19, 900_000})
			}
		})
	}
}

func BenchmarkResponse(b *testing.B) {
	whole := answer(2 << 10)
	b.SetBytes(int64(len(whole)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (dialect.Chat{}).Response(whole, dialect.Conversation{}); err != nil {
			b.Fatal(err)
		}
	}
}
