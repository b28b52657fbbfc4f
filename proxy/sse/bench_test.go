package sse_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/sse"
)

const chunk = `data: {"id":"chatcmpl-8f2c1e6a9b3d4c5f","object":"chat.completion.chunk","created":1764512345,"model":"Qwen/Qwen3-8B",` +
	`"choices":[{"index":0,"delta":{"content":" the"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}` + "\n\n"

func BenchmarkScanner(b *testing.B) {
	for _, tt := range []struct {
		name  string
		event []byte
		piece int
	}{
		{"chunk", []byte(chunk), len(chunk)},
		{"8MB-in-4KB", slices.Concat([]byte("data: "), bytes.Repeat([]byte{'A'}, 8<<20), []byte("\n\n")), 4 << 10},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(int64(len(tt.event)))
			b.ReportAllocs()
			var s sse.Scanner
			for b.Loop() {
				for end := tt.piece; end < len(tt.event); end += tt.piece {
					s.Next(tt.event[:end])
				}
				if s.Next(tt.event) != len(tt.event) {
					b.Fatal("the event did not end")
				}
			}
		})
	}
}

func BenchmarkData(b *testing.B) {
	event := []byte(chunk)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		sse.Data(event)
	}
}

func BenchmarkReplaceData(b *testing.B) {
	event := []byte(chunk)
	data := bytes.Clone(sse.Data(event))
	dst := make([]byte, 0, len(event))
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		sse.ReplaceData(dst, event, data)
	}
}
