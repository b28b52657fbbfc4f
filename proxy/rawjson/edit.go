package rawjson

import (
	"bytes"
	"cmp"
	"slices"
)

// An Edit sets or deletes one member of an object.
type Edit struct {
	Key   string
	Value []byte // raw JSON; nil deletes the member
}

// Apply returns a new text with the edits made and every other byte as it was.
//
// An edit replaces the value of the first member of its name and leaves the
// name as it is written. A name that is absent is appended after the last
// member, without white space; to delete an absent name changes nothing. When
// several edits have one name, the last of them holds.
//
// A deleted member takes along its comma and the white space between it and the
// next member, or the one before it if none follows. Values are not validated:
// the result is JSON if they are.
//
// [Object.With] also says where the members of the result are.
func (o Object) Apply(edits []Edit) []byte {
	var room [16]splice
	return o.join(o.splices(edits, room[:0]))
}

// join returns the text with the splices made.
func (o Object) join(splices []splice) []byte {
	size := len(o.Src)
	for i := range splices {
		size += splices[i].growth()
	}
	return o.appendJoined(make([]byte, 0, size), splices, 0, len(o.Src))
}

// appendJoined appends Src[from:to] with the splices, which are in it, made.
func (o Object) appendJoined(dst []byte, splices []splice, from, to int) []byte {
	for i := range splices {
		s := &splices[i]
		dst = append(dst, o.Src[from:s.from]...)
		dst = s.append(dst)
		from = s.to
	}
	return append(dst, o.Src[from:to]...)
}

// A splice puts a value, or a member that was absent, in the place of Src[from:to].
type splice struct {
	from, to int
	value    []byte
	member   bool // name goes before the value
	comma    bool // and a comma before that
	name     string
}

// growth is by how much the splice lengthens the text; a name with characters
// to escape takes more.
func (s *splice) growth() int {
	n := len(s.value) - (s.to - s.from)
	if s.member {
		n += len(`"":`) + len(s.name)
	}
	if s.comma {
		n++
	}
	return n
}

func (s *splice) append(dst []byte) []byte {
	if s.comma {
		dst = append(dst, ',')
	}
	if s.member {
		dst = append(Quote(dst, s.name), ':')
	}
	return append(dst, s.value...)
}

// splices appends what the edits come to, in the order of the text and without overlap.
func (o Object) splices(edits []Edit, dst []splice) []splice {
	added := false
	for i, e := range edits {
		m := o.index(e.Key)
		switch {
		case superseded(edits, i):
		case m < 0:
			added = added || len(e.Value) > 0
		case len(e.Value) > 0:
			dst = append(dst, splice{from: o.Members[m].ValueStart, to: o.Members[m].ValueEnd, value: trim(e.Value)})
		default:
			dst = append(dst, o.deletion(m))
		}
	}
	slices.SortFunc(dst, func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	dst, kept := o.joinTrailing(dst)
	if !added {
		return dst
	}

	at := bytes.IndexByte(o.Src, '{') + 1
	if n := len(o.Members); n > 0 {
		at = o.Members[n-1].ValueEnd
	}
	comma := kept > 0
	for i, e := range edits {
		if len(e.Value) == 0 || superseded(edits, i) || o.index(e.Key) >= 0 {
			continue
		}
		dst = append(dst, splice{from: at, to: at, value: trim(e.Value), member: true, comma: comma, name: e.Key})
		comma = true
	}
	return dst
}

// deletion removes member m up to the next one.
func (o Object) deletion(m int) splice {
	if m+1 < len(o.Members) {
		return splice{from: o.Members[m].Start, to: o.Members[m+1].Start}
	}
	return splice{from: o.Members[m].Start, to: o.Members[m].ValueEnd}
}

// joinTrailing makes the deletions that reach the last member one, which also
// takes the comma before them. It returns how many members come before that.
func (o Object) joinTrailing(splices []splice) ([]splice, int) {
	kept, n := len(o.Members), len(splices)
	for kept > 0 && n > 0 && splices[n-1].from == o.Members[kept-1].Start {
		kept--
		n--
	}
	if kept == len(o.Members) {
		return splices, kept
	}
	from := o.Members[0].Start
	if kept > 0 {
		from = o.Members[kept-1].ValueEnd
	}
	last := o.Members[len(o.Members)-1]
	return append(splices[:n], splice{from: from, to: last.ValueEnd}), kept
}

// superseded reports whether a later edit has the name of edits[i].
func superseded(edits []Edit, i int) bool {
	for _, later := range edits[i+1:] {
		if later.Key == edits[i].Key {
			return true
		}
	}
	return false
}
