package scripted

import (
	"bytes"
	"compress/gzip"
	"net/http"
)

// faults are answers that are errors, are not what they say, or do not end.
func faults() map[string]Script {
	chat := Fixture("openai/chat.json")
	gzipStream := coded("gzip", compress(Fixture("openai/chat-usage.sse")))
	gzipStream.Header.Set("Content-Type", "text/event-stream")
	gzipStream.Length = -1
	return map[string]Script{
		"400-context-openai":       Error(400, Fixture("errors/context-openai.json")),
		"400-context-vllm":         Error(400, Fixture("errors/context-vllm.json")),
		"400-context-vllm-prompt":  Error(400, Fixture("errors/context-vllm-prompt.json")),
		"400-context-vllm-old":     Error(400, Fixture("errors/context-vllm-old.json")),
		"400-context-sglang":       Error(400, Fixture("errors/context-sglang.json")),
		"400-context-sglang-total": Error(400, Fixture("errors/context-sglang-total.json")),
		"400-stream-options":       Error(400, Fixture("errors/stream-options.json")),
		"401":                      Error(401, Fixture("errors/401.json"), "Www-Authenticate", "Bearer"),
		"403":                      Error(403, Fixture("errors/403.json")),
		"404":                      Error(404, Fixture("errors/404.json")),
		"404-vllm":                 Error(404, Fixture("errors/404-vllm.json")),
		"407":                      Error(407, Fixture("errors/401.json"), "Proxy-Authenticate", "Basic realm=\"proxy\""),
		"429":                      rateLimited(),
		"429-quota":                Error(429, Fixture("errors/429-quota.json")),
		"500":                      Error(500, Fixture("errors/500.json")),
		"503":                      html(503, "errors/503.html"),
		"529":                      Error(529, Fixture("anthropic/529.json")),
		"html":                     html(200, "errors/200.html"),
		"error-200":                file("json/error-200.json"),
		"302": {
			Status: 302,
			Header: http.Header{"Location": {"/login"}, "Content-Type": {"text/html"}},
			Body:   []byte("<a href=\"/login\">Found</a>.\n"),
		},
		"empty":             JSON(nil),
		"not-json":          JSON([]byte("upstream said something else\n")),
		"truncated-length":  {Header: JSON(nil).Header, Body: chat[:len(chat)/2], Length: int64(len(chat)), End: Abort},
		"truncated-chunked": {Header: JSON(nil).Header, Body: chat[:len(chat)/2], Length: -1, End: Abort},
		"truncated-clean":   {Header: JSON(nil).Header, Body: chat[:len(chat)/2], Length: -1},
		"reset-at-once":     {NoHeader: true, End: Reset},
		"close-at-once":     {NoHeader: true, End: Abort},
		"reset-json":        {Header: JSON(nil).Header, Body: chat[:len(chat)/2], Length: int64(len(chat)), End: Reset},
		"silent":            {NoHeader: true, End: Hang},
		"gzip":              coded("gzip", compress(chat)),
		"gzip-stream":       gzipStream,
		"gzip-error":        {Status: 404, Header: coded("gzip", nil).Header, Body: compress(Fixture("errors/404.json"))},
		"gzip-damaged":      coded("gzip", compress(chat)[:100]),
		"br":                coded("br", []byte("\x0b\x02\x80{\"choices\":[]}\x03")),
		"413-early":         {Status: 413, Header: JSON(nil).Header, Body: []byte(`{"detail":"Request body too large"}`), Upload: ReadPart},
		"slow-upload":       {Header: JSON(nil).Header, Body: chat, Upload: Slowly, UploadGap: uploadGap},
	}
}

func html(status int, fixture string) Script {
	return Script{Status: status, Header: http.Header{"Content-Type": {"text/html"}}, Body: Fixture(fixture)}
}

func coded(coding string, body []byte) Script {
	s := JSON(body)
	s.Header.Set("Content-Encoding", coding)
	return s
}

// compress flushes after every event, as servers do, or after the whole when there are none.
func compress(plain []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for event := range events(plain) {
		_, _ = z.Write(event) // a bytes.Buffer takes everything
		_ = z.Flush()
	}
	_ = z.Close()
	return b.Bytes()
}
