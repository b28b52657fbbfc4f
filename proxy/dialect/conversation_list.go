package dialect

import (
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// add adds a message to a conversation.
func (f *fingerprint) add(message uint64) { f.links = append(f.links, link(f.last(), message)) }

// last is the link of the whole conversation so far, 0 of one without messages.
func (f *fingerprint) last() uint64 { return Conversation{Prefixes: f.links}.last() }

// conversation is what was added.
func (f *fingerprint) conversation() Conversation {
	return Conversation{Prefixes: slices.Clone(f.links)}
}

// list adds the list in a field of a request, in which it is the conversation or its
// end. A known message has the fingerprint that it had. message goes over one; on one
// that it says does not count nothing depends.
func (f *fingerprint) list(d Dialect, r *Request, field string, message func(at *rawjson.Cursor) (sum uint64, counts bool)) Conversation {
	raw, ok := r.Object.Get(field)
	if !ok || rawjson.Kind(raw) != '[' {
		return f.conversation()
	}
	// Formats differ in what a fingerprint covers, and a list may go on with something.
	seed := link(xxh3.HashString(d.Name()), f.last())
	f.elements = f.elements[:0]
	switch {
	case r.known.Seed == seed:
		f.elements = append(f.elements, r.known.Elements...)
		for _, e := range f.elements {
			if e.Prefix != f.last() {
				f.links = append(f.links, e.Prefix)
			}
		}
	case len(r.known.Elements) > 0:
		f.canonical = false // nobody has looked at those
	}
	f.at = rawjson.WalkBehind(raw, endOf(f.elements))
	at := &f.at
	for range at.Elements {
		start := at.Offset()
		if sum, counts := message(at); counts {
			f.add(sum)
		}
		if at.Offset() == start {
			at.Value()
		}
		f.elements = append(f.elements, registry.Element{End: at.Offset(), Prefix: f.last()})
	}
	c := f.conversation()
	c.List = registry.List{Field: field, Seed: seed, Elements: slices.Clone(f.elements)}
	return c
}
