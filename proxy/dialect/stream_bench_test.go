package dialect_test

import (
	"fmt"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// BenchmarkStream follows a stream of 1000 events.
func BenchmarkStream(b *testing.B) {
	streams := []struct {
		name    string
		dialect dialect.Dialect
		event   string
	}{
		{"chat", dialect.Chat{}, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",` +
			`"choices":[{"index":0,"delta":{"content":" token%d"},"finish_reason":null}]}` + "\n\n"},
		{"chat-vllm", dialect.Chat{}, `data: {"id":"chatcmpl-8a7fe3d3d4b94c4d8d9e7c4a4f6a3f0e","object":"chat.completion.chunk","created":1764500000,"model":"Qwen/Qwen3-8B",` +
			`"choices":[{"index":0,"delta":{"content":" token%d"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n"},
		{"chat-usage", dialect.Chat{}, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",` +
			`"choices":[{"index":0,"delta":{"content":" token%d"},"finish_reason":null}],"usage":null}` + "\n\n"},
		{"messages", dialect.Messages{}, "event: content_block_delta\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token%d"}}` + "\n\n"},
		{"responses", dialect.Responses{}, "event: response.output_text.delta\n" +
			`data: {"type":"response.output_text.delta","sequence_number":%d,"item_id":"msg_123456","output_index":0,"content_index":0,"delta":" token","logprobs":[]}` + "\n\n"},
	}
	for _, s := range streams {
		b.Run(s.name, func(b *testing.B) {
			request, err := s.dialect.Parse([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"input":"x","max_tokens":10,"stream":true}`), nil)
			if err != nil {
				b.Fatal(err)
			}
			var events [][]byte
			for i := range 1000 {
				events = append(events, fmt.Appendf(nil, s.event, i))
			}
			b.ReportAllocs()
			for b.Loop() {
				stream := s.dialect.Stream(request, dialect.Added{Usage: true}, s.dialect.Conversation(request))
				for _, event := range events {
					stream.Event(event)
					stream.Complete()
				}
				stream.Result()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
		})
	}
}

// BenchmarkAssemble puts a stream of 1000 events together.
func BenchmarkAssemble(b *testing.B) {
	for _, s := range []struct {
		name    string
		dialect dialect.Dialect
		event   string
	}{
		{"chat", dialect.Chat{}, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",` +
			`"choices":[{"index":0,"delta":{"content":" token%d"},"logprobs":null,"finish_reason":null}]}` + "\n\n"},
		{"completions", dialect.Completions{}, `data: {"id":"cmpl-1","object":"text_completion","created":1764500000,"model":"local",` +
			`"choices":[{"index":0,"text":" token%d","logprobs":null,"finish_reason":null}]}` + "\n\n"},
	} {
		b.Run(s.name, func(b *testing.B) {
			var stream []byte
			for i := range 1000 {
				stream = fmt.Appendf(stream, s.event, i)
			}
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.dialect.Assemble(stream); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
