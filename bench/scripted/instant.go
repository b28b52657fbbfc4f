package scripted

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instant answers benchmarks: it costs as little processor time as net/http allows, records nothing, and leaves the
// reading of the request to a pooled buffer. The model chooses the answer:
//
//   - json-2k, json-64k, json-1m: a chat completion of about that many bytes;
//   - paced-N-R: a stream of N events, R a second, each with the time it was sent in `sent_ns`, then the finish
//     reason, the usage and [DONE]. R of 0 is as fast as it goes.
//
// Anything else is answered as json-2k. Make one with [NewInstant]; it may be served by many goroutines.
type Instant struct {
	answers map[string][]byte
	buffers sync.Pool
}

// NewInstant prepares the answers.
func NewInstant() *Instant {
	return &Instant{
		answers: map[string][]byte{
			"json-2k":  completion(2 << 10),
			"json-64k": completion(64 << 10),
			"json-1m":  completion(mebi),
		},
		buffers: sync.Pool{New: func() any { return new([32 << 10]byte) }},
	}
}

// completion is a chat completion of size bytes.
func completion(size int) []byte {
	const head = `{"id":"chatcmpl-1","object":"chat.completion","created":1764500000,"model":"local","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"`
	const tail = `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":100,"total_tokens":200}}`
	words := bytes.Repeat([]byte("all work and no play "), size/21+1)
	b := append([]byte(head), words[:max(0, size-len(head)-len(tail))]...)
	return append(b, tail...)
}

// ServeHTTP answers one request.
func (i *Instant) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	model, err := i.model(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if events, rate, ok := paceOf(model); ok {
		pace(req.Context(), w, events, rate)
		return
	}
	body, ok := i.answers[model]
	if !ok {
		body = i.answers["json-2k"]
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body)
}

// model reads the body to its end and returns the model, which must be in its first 32 KiB.
func (i *Instant) model(body io.Reader) (string, error) {
	buf := i.buffers.Get().(*[32 << 10]byte)
	defer i.buffers.Put(buf)
	n, err := io.ReadFull(body, buf[:])
	model := modelOf(buf[:n])
	for err == nil {
		_, err = body.Read(buf[:])
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return model, err
}

// paceOf reads a model name paced-N-R.
func paceOf(model string) (events int, rate float64, ok bool) {
	rest, ok := strings.CutPrefix(model, "paced-")
	if !ok {
		return 0, 0, false
	}
	n, r, _ := strings.Cut(rest, "-")
	events, err := strconv.Atoi(n)
	if err != nil {
		return 0, 0, false
	}
	rate, err = strconv.ParseFloat(r, 64)
	return events, rate, err == nil
}

const (
	pacedHead = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local","sent_ns":`
	pacedTail = `,"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n"
	pacedLast = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local",` +
		`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"local","choices":[],` +
		`"usage":{"prompt_tokens":100,"completion_tokens":100,"total_tokens":200}}` + "\n\ndata: [DONE]\n\n"
)

// pace sends a stream on a schedule that does not drift.
func pace(ctx context.Context, w http.ResponseWriter, events int, rate float64) {
	w.Header()["Content-Type"] = []string{"text/event-stream"}
	rc := http.NewResponseController(w)
	var interval time.Duration
	if rate > 0 {
		interval = time.Duration(float64(time.Second) / rate)
	}
	var event []byte
	start := time.Now()
	for n := range events {
		due := start.Add(time.Duration(n) * interval)
		if interval > 0 && !sleep(ctx, time.Until(due)) {
			return
		}
		event = strconv.AppendInt(append(event[:0], pacedHead...), time.Now().UnixNano(), 10)
		event = append(event, pacedTail...)
		if _, err := w.Write(event); err != nil {
			return
		}
		if rc.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, pacedLast)
}
