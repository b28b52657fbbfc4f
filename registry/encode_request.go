package registry

import (
	"encoding/binary"
	"errors"
)

// encode is which parts a record is made of: the one between the fields, then of each field its key, its place and its part. It is for
// the journal's writer, once the parts have their ids.
func (r *record) encode() []byte {
	if r == nil {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(r.rest.row))
	for _, f := range r.fields {
		b = binary.AppendUvarint(b, uint64(len(f.key)))
		b = append(b, f.key...)
		b = binary.AppendUvarint(b, uint64(f.at))
		b = binary.AppendUvarint(b, uint64(f.row))
	}
	return b
}

var errDamaged = errors.New("does not fit together")

// decodeRecord is the inverse of encode. The record holds its parts.
func decodeRecord(raw []byte, parts map[uint32]*part) (*record, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // a call that failed before its request was known has none
	}
	d := decoder{raw}
	r := &record{rest: parts[uint32(d.number())]}
	for len(d.raw) > 0 {
		r.fields = append(r.fields, field{key: d.text(), at: int(d.number()), part: parts[uint32(d.number())]})
	}
	if r.rest == nil {
		return nil, errDamaged
	}
	r.rest.refs++
	end, between := 0, 0
	for _, f := range r.fields {
		if f.part == nil || f.at < end {
			return nil, errDamaged
		}
		f.refs++
		between += f.at - end
		end = f.at + f.length
	}
	if between > r.rest.length {
		return nil, errDamaged
	}
	return r, nil
}

// appendPartIDs appends the ids of the parts that an encoded record is made of.
func appendPartIDs(ids []uint32, raw []byte) []uint32 {
	if raw == nil {
		return ids
	}
	d := decoder{raw}
	ids = append(ids, uint32(d.number()))
	for len(d.raw) > 0 {
		d.text()   // the field's key
		d.number() // its place
		ids = append(ids, uint32(d.number()))
	}
	return ids
}

// decoder reads what encode has written. From damaged bytes it reads nonsense, and always something.
type decoder struct{ raw []byte }

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.raw)
	if size <= 0 {
		d.raw = nil
		return 0
	}
	d.raw = d.raw[size:]
	return n
}

func (d *decoder) text() string {
	n := min(d.number(), uint64(len(d.raw)))
	text := string(d.raw[:n])
	d.raw = d.raw[n:]
	return text
}
