package proxy_test

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// R50, R52: a gzip answer that nobody asked for is decoded and counted.
func TestGzipAnswerIsDecoded(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		got := r.chat("gzip", "")
		if !bytes.Equal(got.body, scripted.Fixture("openai/chat.json")) || got.Header.Get("Content-Encoding") != "" {
			s.t.Errorf("got %q coded %q", got.body, got.Header.Get("Content-Encoding"))
		}
		got = r.chat("gzip-stream", usageAsked)
		if !bytes.Equal(got.body, scripted.Fixture("openai/chat-usage.sse")) || got.err != nil || got.Header.Get("Content-Encoding") != "" {
			s.t.Errorf("got %v, %q coded %q", got.err, got.body, got.Header.Get("Content-Encoding"))
		}
		r.wantTurns(2)
		for _, turn := range r.turns() {
			if turn.Usage == nil || turn.Usage.InputTokens != 19 {
				s.t.Errorf("usage is %+v", turn.Usage)
			}
		}
		r.chat("gzip-damaged", "").wantError(s.t, 502, "upstream_invalid")
	})
}

// R52: a gzip stream is let out event by event.
func TestGzipStreamArrivesEventByEvent(t *testing.T) {
	bubble(t, func(s *stack) {
		stream := scripted.Fixture("openai/chat-usage.sse")
		first := events(stream, 1)
		var coded bytes.Buffer
		z := gzip.NewWriter(&coded)
		var pieces [][]byte
		for _, plain := range [][]byte{first, stream[len(first):]} {
			if _, err := z.Write(plain); err != nil {
				s.t.Fatal(err)
			}
			if err := z.Flush(); err != nil {
				s.t.Fatal(err)
			}
			pieces = append(pieces, bytes.Clone(coded.Bytes()))
			coded.Reset()
		}
		if err := z.Close(); err != nil {
			s.t.Fatal(err)
		}
		pieces = append(pieces, coded.Bytes())
		script := scripted.SSE(nil)
		script.Header.Set("Content-Encoding", "gzip")
		script.Pieces = func(yield func([]byte) bool) {
			for _, piece := range pieces {
				if !yield(piece) {
					return
				}
			}
		}
		gate := s.gated("gated", script)
		l := s.register(registry.Spec{}).open("gated", usageAsked)
		gate.Step()
		if got := l.event(); got != string(first) {
			s.t.Errorf("the first event is %q", got)
		}
		gate.Open()
		if rest, err := l.rest(); err != nil || string(first)+rest != string(stream) {
			s.t.Errorf("got %v\n%s", err, rest)
		}
	})
}

// A damaged gzip stream breaks off where the damage is.
func TestDamagedGzipStreamIsATruncation(t *testing.T) {
	bubble(t, func(s *stack) {
		var coded bytes.Buffer
		z := gzip.NewWriter(&coded)
		stream := scripted.Fixture("openai/chat-usage.sse")
		if _, err := z.Write(events(stream, 2)); err != nil {
			s.t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			s.t.Fatal(err)
		}
		script := scripted.SSE(append(coded.Bytes(), "this is not deflate data"...))
		script.Header.Set("Content-Encoding", "gzip")
		script.Cut = scripted.Whole
		s.model.Script("damaged", script)
		r := s.register(registry.Spec{})
		got := r.chat("damaged", usageAsked)
		got.wantBroken(s.t, events(stream, 2), "upstream_invalid")
		r.wantTurns(0, registry.FailureUpstreamTruncated)
	})
}

// R50: other codings of a stream are refused before anything is sent.
func TestUnknownCodingOfAStreamIs502(t *testing.T) {
	bubble(t, func(s *stack) {
		for _, coding := range []string{"br", "zstd", "deflate", "gzip, br"} {
			script := scripted.SSE([]byte("?"))
			script.Header.Set("Content-Encoding", coding)
			s.model.Script("coded", script)
			s.register(registry.Spec{}).chat("coded", streaming).wantError(s.t, 502, "upstream_invalid")
		}
	})
}
