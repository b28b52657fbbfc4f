package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
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

// readHeader reads fields up to the blank line. All of it is in one string: whoever
// keeps a part for long copies that.
func readHeader(lines *lineReader) (http.Header, error) {
	var room [512]byte
	var ends [32]int // of names and values, in turn
	text, parts := room[:0], ends[:0]
	for {
		line, err := lines.next()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			return splitHeader(string(text), parts), nil
		}
		name, value, err := parseField(line)
		if err != nil {
			return nil, err
		}
		text = append(text, name...)
		parts = append(parts, len(text))
		text = append(text, value...)
		parts = append(parts, len(text))
	}
}

// splitHeader makes a header of the names and values that end there in text.
func splitHeader(text string, ends []int) http.Header {
	n := len(ends) / 2
	header, all := make(http.Header, n), make([]string, n)
	start := 0
	for i := range n {
		name, value := text[start:ends[2*i]], text[ends[2*i]:ends[2*i+1]]
		start = ends[2*i+1]
		if values, again := header[name]; again {
			header[name] = append(values, value)
			continue
		}
		all[i] = value
		header[name] = all[i : i+1 : i+1]
	}
	return header
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
		case !tokenBytes[c]: // also of a line that continues another
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
