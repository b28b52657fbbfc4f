package command

import (
	"bytes"
	"regexp"
)

// maxLine is how much of a line is kept, in bytes.
const maxLine = 16 << 10

// escape is a terminal escape: a control sequence, an operating system command
// or a single character.
var escape = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-Z\\\\^-~])")

// lines is a writer that takes what a program prints apart into lines, which it
// hands on without escapes, control characters and surrounding space. Empty
// lines, and what is over maxLine, are dropped.
type lines struct {
	emit func(line string)
	line []byte
}

// Write never fails, so that whoever copies to it goes on to the end.
func (l *lines) Write(text []byte) (int, error) {
	n := len(text)
	for len(text) > 0 {
		end := bytes.IndexAny(text, "\r\n")
		part := text
		if end >= 0 {
			part = text[:end]
		}
		l.line = append(l.line, part[:min(len(part), maxLine-len(l.line))]...)
		if end < 0 {
			break
		}
		l.flush()
		text = text[end+1:]
	}
	return n, nil
}

// flush ends the line.
func (l *lines) flush() {
	line := clean(l.line)
	l.line = l.line[:0]
	if line != "" {
		l.emit(line)
	}
}

func clean(line []byte) string {
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = escape.ReplaceAll(line, nil)
	}
	return string(bytes.TrimSpace(bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, line)))
}
