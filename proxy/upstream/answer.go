package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
)

// maxHead bounds the header of an answer with those of all that goes before it.
const maxHead = 1 << 20

var (
	errMalformed  = errors.New("malformed answer")
	errLongHead   = errors.New("the answer's header is too long")
	errSwitched   = errors.New("the replica switched protocols")
	errBadVersion = errors.New("the answer is of another version of HTTP")
)

// lineReader reads lines up to a number of bytes in total.
type lineReader struct {
	*bufio.Reader
	left int
	long []byte // a line that did not fit the buffer
}

// next gives a line without its end, until the next is read.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) && len(l.long) < l.left {
			l.long = append(l.long, line...)
			line, err = l.ReadSlice('\n')
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	if l.left -= len(line); l.left < 0 {
		return nil, errLongHead
	}
	if err != nil {
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line) - 1; n >= 0 && line[n] == '\r' {
		line = line[:n]
	}
	return line, nil
}

// readHead reads the header of an answer, past those that only say that one will
// come.
func readHead(r *bufio.Reader, res *http.Response) error {
	lines := lineReader{Reader: r, left: maxHead}
	for {
		line, err := lines.next()
		if err != nil {
			return err
		}
		if err := parseStatus(line, res); err != nil {
			return err
		}
		if res.Header, err = readHeader(&lines); err != nil {
			return err
		}
		if res.StatusCode >= http.StatusOK {
			return nil
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return errSwitched
		}
	}
}

// parseStatus reads HTTP/1.1 200 OK, of which the OK and its space may be missing.
func parseStatus(line []byte, res *http.Response) error {
	version, status, ok := bytes.Cut(line, []byte(" "))
	switch {
	case !ok:
		return errMalformed
	case string(version) == "HTTP/1.1":
		res.Proto, res.ProtoMajor, res.ProtoMinor = "HTTP/1.1", 1, 1
	case string(version) == "HTTP/1.0":
		res.Proto, res.ProtoMajor, res.ProtoMinor = "HTTP/1.0", 1, 0
	case bytes.HasPrefix(version, []byte("HTTP/")):
		return errBadVersion
	default:
		return errMalformed
	}
	status = bytes.TrimLeft(status, " ")
	if len(status) < 3 || len(status) > 3 && status[3] != ' ' {
		return errMalformed
	}
	code := 0
	for _, c := range status[:3] {
		if c < '0' || c > '9' {
			return errMalformed
		}
		code = 10*code + int(c-'0')
	}
	if code < 100 {
		return errMalformed
	}
	res.StatusCode = code
	if string(status) == "200 OK" {
		res.Status = "200 OK"
	} else {
		res.Status = string(status)
	}
	return nil
}

// readHeader reads fields up to the blank line.
func readHeader(lines *lineReader) (http.Header, error) {
	header := make(http.Header, 8)
	var room []string // for values, of several fields in one piece of memory
	for {
		line, err := lines.next()
		if err != nil || len(line) == 0 {
			return header, err
		}
		name, value, err := parseField(line)
		if err != nil {
			return nil, err
		}
		key, text := fieldName(name), fieldValue(value)
		if values, again := header[key]; again {
			header[key] = append(values, text)
			continue
		}
		if len(room) == 0 {
			room = make([]string, 8)
		}
		room[0] = text
		header[key] = room[:1:1]
		room = room[1:]
	}
}

// parseField divides a line and makes the name canonical, in place.
func parseField(line []byte) (name, value []byte, err error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 {
		return nil, nil, errMalformed
	}
	upper := true
	for i, c := range name {
		switch {
		case !tokenByte(c): // also of a line that continues another
			return nil, nil, errMalformed
		case upper && 'a' <= c && c <= 'z':
			name[i] = c - 'a' + 'A'
		case !upper && 'A' <= c && c <= 'Z':
			name[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, errMalformed
		}
	}
	return name, value, nil
}

func tokenByte(c byte) bool {
	return c > ' ' && c < 0x7f && strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) < 0
}

// fieldName is a name as a string, without memory of its own if it is common.
func fieldName(b []byte) string {
	switch string(b) {
	case "Connection":
		return "Connection"
	case "Content-Encoding":
		return "Content-Encoding"
	case "Content-Length":
		return "Content-Length"
	case "Content-Type":
		return "Content-Type"
	case "Cache-Control":
		return "Cache-Control"
	case "Date":
		return "Date"
	case "Keep-Alive":
		return "Keep-Alive"
	case "Server":
		return "Server"
	case "Transfer-Encoding":
		return "Transfer-Encoding"
	case "Vary":
		return "Vary"
	case "X-Request-Id":
		return "X-Request-Id"
	}
	return string(b)
}

// fieldValue is the same for a value.
func fieldValue(b []byte) string {
	switch string(b) {
	case "application/json":
		return "application/json"
	case "text/event-stream; charset=utf-8":
		return "text/event-stream; charset=utf-8"
	case "text/event-stream":
		return "text/event-stream"
	case "no-cache":
		return "no-cache"
	case "keep-alive":
		return "keep-alive"
	case "chunked":
		return "chunked"
	case "uvicorn":
		return "uvicorn"
	}
	return string(b)
}
