package registry

import "bytes"

// record is the body of one request: the values of its big fields and what is between them. Apart from list and origin it does not
// change.
type record struct {
	rest   *part // the body without the fields
	fields []field
	list   List   // without elements once a later record has them too; the store guards it
	origin origin // set once it is the call's; Session.mu guards it
}

// field is the value of one big field of a body.
type field struct {
	key string
	at  int // where it begins in the body
	*part
}

// newRecord returns a record with room for n fields, and for the part that most requests add, as one object: the garbage collector looks
// at everything that is kept again and again.
func newRecord(n int, list List) (*record, *part) {
	kept := &struct {
		record
		room [2]field
		part part
	}{record: record{list: list}}
	if kept.fields = kept.room[:]; n > len(kept.room) {
		kept.fields = make([]field, n)
	}
	kept.fields = kept.fields[:n]
	return &kept.record, &kept.part
}

// What a part, a record with its turn or failed call, and a field take besides their bytes, roughly.
const (
	partOverhead   = 96
	recordOverhead = 640
	fieldOverhead  = 32
)

// content is a field's value within a body that is being added.
type content struct {
	key   string
	at    int
	bytes []byte
}

// split takes the values at the given spans out of body. Spans that cannot be, or that are too short to be worth it, are left where
// they are.
func (w *workspace) split(body []byte, spans []Part) {
	w.contents, w.rest = w.contents[:0], w.rest[:0]
	end := 0
	for _, span := range spans {
		if span.Start < end || span.End > len(body) || span.End-span.Start < minShared {
			continue
		}
		w.contents = append(w.contents, content{key: span.Key, at: span.Start, bytes: body[span.Start:span.End]})
		w.rest = append(w.rest, body[end:span.Start]...)
		end = span.End
	}
	w.rest = append(w.rest, body[end:]...)
}

// field returns the value of the field with this key, nil if there is none.
func (r *record) field(key string) *part { return r.find(key).part }

// find returns the field with this key, one without a part if there is none.
func (r *record) find(key string) field {
	if r != nil {
		for i := range r.fields {
			if r.fields[i].key == key {
				return r.fields[i]
			}
		}
	}
	return field{key: key}
}

// size returns the length of the body.
func (r *record) size() int {
	if r == nil {
		return 0
	}
	n := r.rest.length
	for _, f := range r.fields {
		n += f.length
	}
	return n
}

// bytes puts the body together again, nil for no record.
func (r *record) bytes() []byte {
	if r == nil {
		return nil
	}
	var w walker
	body := make([]byte, 0, r.size())
	rest := bytes.Join(w.walk(r.rest), nil)
	for _, f := range r.fields {
		between := f.at - len(body)
		body, rest = append(body, rest[:between]...), rest[between:]
		for _, segment := range w.walk(f.part) {
			body = append(body, segment...)
		}
	}
	return append(body, rest...)
}
