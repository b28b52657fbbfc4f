package sse_test

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/sse"
)

func Example() {
	// What two reads from the network returned.
	reads := []string{"event: delta\ndata: {\"text\":\"Hel", "lo\"}\n\n: keepalive\n\ndata: [DONE]\n\n"}

	var (
		scanner sse.Scanner
		buf     []byte
	)
	for _, read := range reads {
		buf = append(buf, read...)
		for n := scanner.Next(buf); n > 0; n = scanner.Next(buf) {
			event := buf[:n]
			fmt.Printf("%q type=%q data=%s comment=%v\n", event, sse.Type(event), sse.Data(event), sse.IsComment(event))
			buf = buf[n:]
		}
	}
	// Output:
	// "event: delta\ndata: {\"text\":\"Hello\"}\n\n" type="delta" data={"text":"Hello"} comment=false
	// ": keepalive\n\n" type="" data= comment=true
	// "data: [DONE]\n\n" type="" data=[DONE] comment=false
}
