package scripted

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"
)

// conn is a connection of a [Server]. It keeps the head of every request it reads, because net/http gives header
// fields without their order and case.
type conn struct {
	net.Conn

	mu    sync.Mutex // guards what follows
	heads [][]byte   // of requests not yet taken by the handler, oldest first
	scan  headScanner
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p[:n]; len(rest) > 0; {
		var head []byte
		if head, rest = c.scan.next(rest); head != nil {
			c.heads = append(c.heads, head)
		}
	}
	return n, err
}

// reset closes the connection in the way that makes the kernel, or a [Network], send an RST.
func (c *conn) reset() {
	if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// takeHead returns the head of the request that is served on the context's connection, once.
func takeHead(ctx context.Context) []byte {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.heads) == 0 {
		return nil
	}
	head := c.heads[0]
	c.heads = c.heads[1:]
	return head
}

// headScanner finds request heads in what a connection receives, and skips bodies.
type headScanner struct {
	line    []byte // the line, or in a head the lines, read so far
	state   scanState
	skip    int64 // bytes of a body or chunk still to come
	chunked bool
}

type scanState int

const (
	inHead scanState = iota
	inBody
	inChunkSize
	inTrailer
)

// next consumes some of p, at least one byte, and returns the rest. head is not nil when a head was completed.
func (s *headScanner) next(p []byte) (head, rest []byte) {
	if s.state == inBody {
		n := min(s.skip, int64(len(p)))
		if s.skip -= n; s.skip == 0 {
			s.state = inHead
			if s.chunked {
				s.state = inChunkSize
			}
		}
		return nil, p[n:]
	}
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		s.line = append(s.line, p...)
		return nil, nil
	}
	s.line = append(s.line, p[:i+1]...)
	return s.endLine(), p[i+1:]
}

// endLine handles the end of a line and returns the head when that was its last.
func (s *headScanner) endLine() []byte {
	switch s.state {
	case inHead:
		if !bytes.HasSuffix(s.line, []byte("\r\n\r\n")) {
			return nil
		}
		head := s.line
		s.line = nil
		s.body(head)
		return head
	case inChunkSize:
		size, _, _ := strings.Cut(strings.TrimSpace(string(s.line)), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		s.state, s.skip = inBody, n+2 // with the line end after the chunk
		if n == 0 || err != nil {
			s.state = inTrailer
		}
	case inTrailer:
		if string(s.line) == "\r\n" {
			s.state, s.chunked = inHead, false
		}
	case inBody:
	}
	s.line = s.line[:0]
	return nil
}

// body sets the state for what follows a head.
func (s *headScanner) body(head []byte) {
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case strings.EqualFold(key, "Content-Length"):
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 {
				s.state, s.skip = inBody, n
			}
		case strings.EqualFold(key, "Transfer-Encoding") && strings.EqualFold(value, "chunked"):
			s.state, s.chunked = inChunkSize, true
		}
	}
}

func silent() *log.Logger { return log.New(io.Discard, "", 0) }
