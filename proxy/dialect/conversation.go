package dialect

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/registry"
)

// A Conversation is the messages of a request as chained fingerprints.
//
// A fingerprint covers what a harness gives back unchanged: role, text,
// tool-call ids and names, and arguments as JSON values. The rest (key order,
// escapes, reasoning, content as a string or as parts) differs between clients
// that re-serialise, and is left out. Links are stable across processes.
type Conversation struct {
	// Prefixes holds, for each message, the link of the conversation up to
	// and including it.
	Prefixes []uint64

	// List is the same of a conversation that is a list in the request, with where the
	// messages end, for the next request to be compared with.
	List registry.List

	text *text // instead of messages; nil if there is none
}

// last is the link of the whole conversation, 0 of one without messages.
func (c Conversation) last() uint64 {
	if n := len(c.Prefixes); n > 0 {
		return c.Prefixes[n-1]
	}
	return 0
}

// TextPrefixes returns, if the conversation is one text, what hashes its
// beginnings of the lengths that it is given, which ascend; otherwise nil.
func (c Conversation) TextPrefixes() func(lengths []int) []uint64 {
	if c.text == nil {
		return nil
	}
	return c.text.prefixes
}

// Forget lets go of the request that the conversation was made of. TextPrefixes
// finds nothing afterwards.
func (c Conversation) Forget() {
	if c.text != nil {
		c.text.raw = nil
	}
}

// Continued is the link of the conversation followed by one more message.
func (c Conversation) Continued(message uint64) uint64 {
	return link(c.last(), message)
}

func link(previous, message uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], previous)
	binary.LittleEndian.PutUint64(b[8:], message)
	return xxh3.Hash(b[:])
}
