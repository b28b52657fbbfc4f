package sse

import "bytes"

// A line of an event: event[start:end] without its line end, of which nameEnd
// and valueStart delimit the field.
type line struct {
	start, nameEnd, valueStart, end int
	next                            int // offset of the following line
}

// lineAt splits the line at offset i as the standard's "interpreting an event
// stream" does: the name up to the first colon, and the value after it and one
// space. A comment has an empty name; a line without a colon is all name.
func lineAt(event []byte, i int) line {
	end := lineEnd(event, i)
	l := line{start: i, nameEnd: end, valueStart: end, end: end, next: end + terminator(event, end)}
	if colon := bytes.IndexByte(event[i:end], ':'); colon >= 0 {
		l.nameEnd = i + colon
		l.valueStart = l.nameEnd + 1
		if l.valueStart < end && event[l.valueStart] == ' ' {
			l.valueStart++
		}
	}
	return l
}

func (l line) named(event []byte, name string) bool {
	return string(event[l.start:l.nameEnd]) == name
}

func (l line) value(event []byte) []byte {
	return event[l.valueStart:l.end:l.end]
}

// firstLine returns the offset of the first line, behind a byte order mark.
func firstLine(event []byte) int {
	if bytes.HasPrefix(event, []byte(bom)) {
		return len(bom)
	}
	return 0
}

// Data returns the data of an event: the values of its data lines, joined by
// \n. It aliases event if there is one such line, and is nil if there is none.
func Data(event []byte) []byte {
	var data []byte
	lines := 0
	for i := firstLine(event); i < len(event); {
		l := lineAt(event, i)
		i = l.next
		if !l.named(event, "data") {
			continue
		}
		if lines++; lines == 1 {
			data = l.value(event)
			continue
		}
		data = append(append(data, '\n'), l.value(event)...)
	}
	return data
}

// Type returns the value of the event field, the last one as the standard has
// it, and nil if there is none. It aliases event.
func Type(event []byte) []byte {
	var name []byte
	for i := firstLine(event); i < len(event); {
		l := lineAt(event, i)
		i = l.next
		if l.named(event, "event") {
			name = l.value(event)
		}
	}
	return name
}

// IsComment reports whether an event has no field lines, only comments and
// blank lines. Readers of the stream never see such an event.
func IsComment(event []byte) bool {
	for i := firstLine(event); i < len(event); {
		l := lineAt(event, i)
		i = l.next
		if l.nameEnd > l.start {
			return false
		}
	}
	return true
}

// ReplaceData appends event to dst with data in the place of its data, and
// everything else unchanged: other fields, comments, line ends, the space after
// the colon or its absence.
//
// Line ends in data make it several data lines of the same form. An event that
// had several gets the new data where the first was and loses the others. An
// event without data is appended as it is. data must not alias dst.
func ReplaceData(dst, event, data []byte) []byte {
	replaced := false
	from := 0
	for i := firstLine(event); i < len(event); {
		l := lineAt(event, i)
		i = l.next
		if !l.named(event, "data") {
			continue
		}
		dst = append(dst, event[from:l.start]...)
		from = l.next
		if !replaced {
			dst = appendData(dst, event, l, data)
			replaced = true
		}
	}
	return append(dst, event[from:]...)
}

// appendData writes data in the form of the data line l.
func appendData(dst, event []byte, l line, data []byte) []byte {
	prefix := event[l.start:l.valueStart]
	if l.nameEnd == l.end && len(data) > 0 {
		prefix = []byte("data:") // the line was just "data"
	}
	last := event[l.end:l.next]
	between := last
	if len(between) == 0 {
		between = []byte("\n")
	}
	for {
		end := lineEnd(data, 0)
		dst = append(dst, prefix...)
		if prefix[len(prefix)-1] == ':' && end > 0 && data[0] == ' ' {
			dst = append(dst, ' ') // or the reader would take data's own
		}
		dst = append(dst, data[:end]...)
		if end == len(data) {
			return append(dst, last...)
		}
		dst = append(dst, between...)
		data = data[end+terminator(data, end):]
	}
}
