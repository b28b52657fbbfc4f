package dialect

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// A text is the prompt of a completion, as characters or as token ids. A later
// prompt goes on with it and its completion if it begins with both. That can be
// at any byte, so a prompt has no prefixes that could be listed: the lengths of
// the texts that there were say where to look.
type text struct {
	raw    []byte // JSON; nil once it is not needed any more
	ids    bool
	echoed bool // the answer repeats the prompt

	digest xxhash.Digest
	length int // bytes
}

// idSize is what a token id takes of a text's length.
const idSize = 8

// newText reads a prompt that is one string or one list of token ids; it is nil
// for anything else.
func newText(raw []byte, echoed bool) *text {
	t := &text{raw: raw, ids: rawjson.Kind(raw) == '[', echoed: echoed, digest: newTextDigest(rawjson.Kind(raw))}
	if t.ids {
		_, n, ok := writeIDs(&t.digest, raw, nil)
		t.length = n * idSize
		if !ok {
			return nil
		}
		return t
	}
	if rawjson.Kind(raw) != '"' {
		return nil
	}
	f := newFingerprint()
	defer f.free()
	b := f.unquoted(raw)
	t.length = len(b)
	t.digest.Write(b) //nolint:errcheck // documented never to fail
	return t
}

// newTextDigest keeps texts of characters and of token ids apart.
func newTextDigest(kind byte) xxhash.Digest {
	var d xxhash.Digest
	d.Reset()
	d.Write([]byte{kind}) //nolint:errcheck // documented never to fail
	return d
}

// writeIDs adds token ids and says how many there are; false is not only ids. It
// returns the hashes at those of the lengths, which ascend, where an id ends.
func writeIDs(d *xxhash.Digest, ids []byte, lengths []int) (prefixes []uint64, n int, ok bool) {
	var room [64 * idSize]byte
	b := room[:0]
	for id, ok := range rawjson.Ints(ids) {
		if !ok {
			return nil, n, false
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(id)) //nolint:gosec // any bits will do
		n++
		for len(lengths) > 0 && lengths[0] < n*idSize {
			lengths = lengths[1:]
		}
		asked := len(lengths) > 0 && lengths[0] == n*idSize
		if asked || len(b) == len(room) {
			d.Write(b) //nolint:errcheck // documented never to fail
			b = room[:0]
		}
		if asked {
			prefixes = append(prefixes, d.Sum64())
		}
	}
	d.Write(b) //nolint:errcheck // documented never to fail
	return prefixes, n, true
}

// prefixes hashes the beginnings of these lengths, which ascend.
func (t *text) prefixes(lengths []int) []uint64 {
	if len(lengths) == 0 || lengths[0] > t.length {
		return nil
	}
	d := newTextDigest(rawjson.Kind(t.raw))
	if t.ids {
		prefixes, _, _ := writeIDs(&d, t.raw, lengths)
		return prefixes
	}
	var prefixes []uint64
	f := newFingerprint()
	defer f.free()
	b, from := f.unquoted(t.raw), 0
	for _, n := range lengths {
		if n > len(b) {
			break
		}
		d.Write(b[from:n]) //nolint:errcheck // documented never to fail
		from = n
		prefixes = append(prefixes, d.Sum64())
	}
	return prefixes
}

// continued is the text followed by a completion, as the answer has that: its
// hash, 0 if that cannot be known, and its length. ids is JSON, or nil.
func (t *text) continued(completion, ids []byte) (hash uint64, length int) {
	d := t.digest
	if t.ids {
		_, n, ok := writeIDs(&d, ids, nil)
		if !ok || n == 0 {
			return 0, 0
		}
		return d.Sum64(), t.length + n*idSize
	}
	added := t.generated(completion)
	d.Write(added) //nolint:errcheck // documented never to fail
	return d.Sum64(), t.length + len(added)
}

// generated is a completion without the prompt that it may repeat.
func (t *text) generated(completion []byte) []byte {
	if t == nil || !t.echoed || t.ids || len(completion) < t.length {
		return completion
	}
	d := newTextDigest('"')
	d.Write(completion[:t.length]) //nolint:errcheck // documented never to fail
	if d.Sum64() != t.digest.Sum64() {
		return completion
	}
	return completion[t.length:]
}
