package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A client is one keep-alive HTTP/1.1 connection that costs as little as
// possible, so that the load does not compete with what it measures.
type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	number  []byte // of the call, in the request; nil if all calls are the same
}

// access is how a rollout reaches its target.
type access struct {
	path   string
	secret string
	header string // further lines, each with its end
}

func dial(ctx context.Context, addr string, a access, body string) (*client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nAccept: application/json\r\nUser-Agent: OpenAI/Python 3.57.0\r\n"+
		"X-Stainless-Lang: python\r\nX-Stainless-Retry-Count: 0\r\n%sContent-Length: %d\r\n\r\n%s",
		a.path, addr, a.secret, a.header, len(body), body)
	c := &client{conn: conn, reader: bufio.NewReaderSize(conn, 16<<10), request: []byte(request)}
	if at := bytes.Index(c.request, []byte(callNumber)); at >= 0 {
		c.number = c.request[at : at+len(callNumber)]
	}
	return c, nil
}

// callNumber is where a request says which of its client's it is.
const callNumber = "00000000"

// next makes the request another than the one before.
func (c *client) next() {
	for i := len(c.number) - 1; i >= 0; i-- {
		if c.number[i]++; c.number[i] <= '9' {
			return
		}
		c.number[i] = '0'
	}
}

// requestBody is a chat of about size bytes, in messages of about a kilobyte. Its
// last message is another in every call, as an agent's is, or its first.
func requestBody(size int, model string, stream, anew bool) string {
	const unit = `All work and no play makes a dull day.\n`
	var b strings.Builder
	begin, end := "", callNumber
	if anew {
		begin, end = end, begin
	}
	fmt.Fprintf(&b, `{"model":%q,"messages":[{"role":"system","content":"You are a coding agent. %s"}`, model, begin)
	for rest := size - 180; rest > 0; rest -= 1 << 10 {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, strings.Repeat(unit, max(min(rest, 1<<10)-30, len(unit))/len(unit)))
	}
	fmt.Fprintf(&b, `,{"role":"user","content":"%s"}],"temperature":0.7,"stream":%t}`, end, stream)
	return b.String()
}

// call sends the request and reads the answer's body to its end; each piece of
// it, as it was framed, is shown to observe.
func (c *client) call(observe func(piece []byte)) error {
	c.next()
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	length, err := c.header()
	if err != nil {
		return err
	}
	if length >= 0 {
		_, err := c.reader.Discard(length)
		return err
	}
	return c.chunks(observe)
}

// header reads the status and the header and returns the body's length, -1 for
// a chunked one.
func (c *client) header() (int, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		rest, _ := c.reader.Peek(c.reader.Buffered())
		return 0, fmt.Errorf("%s%s", line, rest)
	}
	length := -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			return length, nil
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
}

func (c *client) chunks(observe func([]byte)) error {
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 64)
		if err != nil {
			return err
		}
		if piece, err := c.reader.Peek(int(min(size, 8<<10))); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if size > 0 && observe != nil {
			observe(piece)
		}
		if _, err := c.reader.Discard(int(size) + len("\r\n")); err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
	}
}

// eventsIn counts the paced events of a piece: more than one where they came
// faster than they were handed on.
func eventsIn(piece []byte) int { return bytes.Count(piece, []byte(`" token"`)) }

// sentAt finds when the upstream sent the first event of a piece. Some targets
// leave out what they do not know.
func sentAt(piece []byte) (time.Time, bool) {
	_, rest, ok := bytes.Cut(piece, []byte(`"sent_ns":`))
	if !ok {
		return time.Time{}, false
	}
	digits, _, ok := bytes.Cut(rest, []byte(","))
	if !ok {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(string(bytes.TrimSpace(digits)), 10, 64)
	return time.Unix(0, ns), err == nil
}
