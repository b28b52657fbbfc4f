package rawjson

import "bytes"

// A Member is one name and value of an object, as offsets into its text.
type Member struct {
	Key                  []byte // unescaped; aliases the text when it has no escapes
	Start                int    // of the key's opening quote
	ValueStart, ValueEnd int    // of the raw value, without white space
}

// An Object is a parsed JSON object: the text and where its members are, in
// their order there. It is made by [ParseObject] and not changed afterwards.
type Object struct {
	Src     []byte
	Members []Member

	canonical bool // see Canonical
}

// ParseObject validates all of src, one object with optional white space
// around it, and finds its members. They are put into reuse, as far as its
// capacity goes, so that a caller who keeps the slice parses without allocating;
// only a key with escapes costs an allocation of its own.
//
// The error is a [*SyntaxError], or [ErrNotObject] for other JSON.
// Duplicate keys are valid JSON (RFC 8259, section 4): see [Object.Count].
func ParseObject(src []byte, reuse []Member) (Object, error) {
	return ParseObjectKnowing(src, reuse, nil)
}

// ParseObjectKnowing is ParseObject for callers who know values from before. For each
// member whose value is an array known is given the rest of the text from that on, and
// returns how far it need not be validated again: up to the end of an element of what
// is an array for certain, or 0. [Object.Canonical] is then about what was validated.
func ParseObjectKnowing(src []byte, reuse []Member, known func(key, rest []byte) int) (Object, error) {
	start := skipSpace(src, 0)
	if start < len(src) && src[start] != '{' {
		if err := Valid(src); err != nil {
			return Object{}, err
		}
		return Object{}, ErrNotObject
	}
	s := scanner{src: src}
	members, i, f := s.members(start, reuse[:0], known)
	if f == faultNone {
		i, f = scanEnd(src, i)
	}
	if err := f.at(src, i); err != nil {
		return Object{}, err
	}
	s.checkUTF8(len(src))
	return Object{Src: src, Members: members, canonical: !s.foreign}, nil
}

// members validates the object whose brace is at src[i]. known is that of
// ParseObjectKnowing; it may be nil.
func (s *scanner) members(i int, members []Member, known func(key, rest []byte) int) ([]Member, int, fault) {
	src := s.src
	if i >= len(src) {
		return nil, i, faultValue
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return members, i + 1, faultNone
	}
	if cap(members) == 0 {
		members = make([]Member, 0, 8)
	}
	for {
		m, f := s.member(i, known)
		if f != faultNone {
			return nil, m.ValueEnd, f
		}
		if len(members) == MaxMembers {
			return nil, i, faultMembers
		}
		members = append(members, m)
		i = skipSpace(src, m.ValueEnd)
		switch {
		case i < len(src) && src[i] == ',':
			i = skipSpace(src, i+1)
		case i < len(src) && src[i] == '}':
			return members, i + 1, faultNone
		default:
			return nil, i, faultObject
		}
	}
}

// member validates the member whose key starts at src[i]. On a fault its
// offset is the member's ValueEnd.
func (s *scanner) member(i int, known func(key, rest []byte) int) (Member, fault) {
	src := s.src
	if i >= len(src) || src[i] != '"' {
		return Member{ValueEnd: i}, faultKey
	}
	keyEnd, f := s.string(i)
	if f != faultNone {
		return Member{ValueEnd: keyEnd}, f
	}
	start, f := scanColon(src, keyEnd)
	if f != faultNone {
		return Member{ValueEnd: start}, f
	}
	m := Member{Key: unescape(src[i:keyEnd]), Start: i, ValueStart: start}
	n := 0
	if known != nil && start < len(src) && src[start] == '[' {
		n = known(m.Key, src[start:])
	}
	if n > 0 {
		s.checkUTF8(start)
		s.checked += n
		m.ValueEnd, f = s.behind(start+n, 1)
	} else {
		m.ValueEnd, f = s.value(start, 1)
	}
	return m, f
}

// unescape returns the contents of a quoted string, in place if it has no escapes.
func unescape(raw []byte) []byte {
	inner := raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return AppendString(nil, raw)
}

// index returns the position of the first member named key, or -1.
func (o Object) index(key string) int {
	for i := range o.Members {
		if string(o.Members[i].Key) == key {
			return i
		}
	}
	return -1
}

// Get returns the raw value of the first member named key.
func (o Object) Get(key string) (raw []byte, ok bool) {
	i := o.index(key)
	if i < 0 {
		return nil, false
	}
	m := &o.Members[i]
	return o.Src[m.ValueStart:m.ValueEnd:m.ValueEnd], true
}

// Count returns how many members are named key. More than one means that
// receivers may disagree about which holds, whatever escapes the names were
// written with.
func (o Object) Count(key string) int {
	n := 0
	for i := range o.Members {
		if string(o.Members[i].Key) == key {
			n++
		}
	}
	return n
}
