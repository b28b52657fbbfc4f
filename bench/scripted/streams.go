package scripted

import (
	"bytes"
	"fmt"
	"iter"
	"time"
)

// slowGap is the pause between the events of "stream-ids-slow".
const slowGap = 4 * time.Second

// streams are event streams with unusual framing, contents or ends. They answer with a stream whatever was asked.
func streams() map[string]Script {
	m := map[string]Script{}
	for _, name := range []string{
		"no-space", "crlf", "cr", "mixed", "comments", "comments-only", "ids", "bom", "runes", "no-final-blank", "event-lines",
	} {
		m["stream-"+name] = SSE(Fixture("framing/" + name + ".sse"))
	}
	for _, name := range []string{
		"no-done", "no-finish-reason", "no-terminal", "done-first", "error-after-text", "error-after-text-done", "error-first",
		"error-event-first",
	} {
		m["stream-"+name] = SSE(Fixture("ends/" + name + ".sse"))
	}
	bytewise := SSE(Fixture("framing/runes.sse"))
	bytewise.Cut = Bytes
	m["stream-bytewise"] = bytewise

	m["stream-half-event"] = ending(SSE(Fixture("ends/half-event.sse")), 0, Abort)
	chat := SSE(Fixture("openai/chat-usage.sse"))
	m["stream-abort"] = ending(chat, 2, Abort)
	m["stream-reset"] = ending(chat, 2, Reset)
	m["stream-reset-first"] = ending(chat, 1, Reset)
	m["stream-hang"] = ending(chat, 1, Hang)
	m["stream-silent"] = Script{Header: chat.Header, Pieces: whole(nil), FlushHeader: true, End: Hang}
	m["stream-empty"] = Script{Header: chat.Header, Pieces: whole(nil), FlushHeader: true}
	slow := m["stream-ids"]
	slow.Gap = slowGap
	m["stream-ids-slow"] = slow
	m["stream-8mb-line"] = Script{Header: chat.Header, Pieces: bigLine(8 * mebi)}
	m["stream-60mb"] = Script{Header: chat.Header, Pieces: flood(60 * mebi)}
	return m
}

func ending(s Script, limit int, end End) Script {
	s.Limit, s.End = limit, end
	return s
}

// chunk is a chat event with the content, which must need no escapes, or with a finish reason when it is empty.
func chunk(content string) []byte {
	if content == "" {
		return []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",` +
			`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
	}
	return fmt.Appendf(nil, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",`+
		`"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`+"\n\n", content)
}

const done = "data: [DONE]\n\n"

// bigLine is a stream with one event whose data line has a content of n bytes.
func bigLine(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		_ = yield(chunk(string(bytes.Repeat([]byte("QUJD"), n/4)))) && yield(chunk("")) && yield([]byte(done))
	}
}

// flood is a stream of events of 16 KiB that has at least n bytes.
func flood(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		event := chunk(string(bytes.Repeat([]byte("x"), 16<<10)))
		for range (n + len(event) - 1) / len(event) {
			if !yield(event) {
				return
			}
		}
		_ = yield(chunk("")) && yield([]byte(done))
	}
}
