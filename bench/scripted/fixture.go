package scripted

import (
	"embed"
	"fmt"
	"net/http"
	"path"
)

//go:embed all:testdata
var fixtures embed.FS

// Fixture returns the exact bytes of a file of testdata, named as in "openai/chat.sse". It panics when there is no such
// file, which is a mistake in the caller. The caller may change the bytes.
func Fixture(name string) []byte {
	b, err := fixtures.ReadFile(path.Join("testdata", name))
	if err != nil {
		panic(fmt.Sprintf("scripted: no fixture %s", name))
	}
	return b
}

// JSON is a 200 with a JSON body of known length.
func JSON(body []byte) Script {
	return Script{Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// SSE is a 200 with a stream, sent event by event.
func SSE(body []byte) Script {
	return Script{
		Header: http.Header{
			"Content-Type":  {"text/event-stream; charset=utf-8"},
			"Cache-Control": {"no-cache"},
		},
		Body: body,
		Cut:  Events,
	}
}

// Error is a JSON answer with the status. Its header holds the pairs of key and value given.
func Error(status int, body []byte, pairs ...string) Script {
	s := JSON(body)
	s.Status = status
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Header[pairs[i]] = append(s.Header[pairs[i]], pairs[i+1])
	}
	return s
}

// file is [JSON] or [SSE] of a fixture, by its suffix.
func file(name string) Script {
	if path.Ext(name) == ".sse" {
		return SSE(Fixture(name))
	}
	return JSON(Fixture(name))
}
