package registry

import (
	"fmt"
	"slices"
)

// loadedTrace is what a journal keeps of a session's calls, as it was.
type loadedTrace struct {
	turns   []*keptTurn
	failed  []*FailedCall
	started []*FailedCall // as what they are if they never ended
	lastRow uint32        // of the calls
}

// load puts requests together again. Those that shared memory do so as before, and later ones will share with them. The store must be
// empty.
func (s *store) load(rows TraceRows) (trace loadedTrace, err error) {
	parts, err := s.loadParts(rows.Parts)
	if err != nil {
		return trace, err
	}
	var cost int64
	for _, row := range slices.Concat(rows.Calls, rows.Started) {
		r, err := decodeRecord(row.Request, parts)
		if err != nil {
			return trace, fmt.Errorf("request of call %d: %w", row.ID, err)
		}
		shared, err := decodeRecord(row.Shared, parts)
		if err != nil {
			return trace, fmt.Errorf("response of call %d: %w", row.ID, err)
		}
		for _, r := range []*record{r, shared} {
			if r != nil {
				cost += int64(recordOverhead + fieldOverhead*len(r.fields))
				s.recent = append(s.recent, r)
			}
		}
		trace.lastRow = max(trace.lastRow, row.ID)
		if err := trace.add(row, r, shared, len(trace.turns)+len(trace.failed) < len(rows.Calls)); err != nil {
			return trace, fmt.Errorf("call %d: %w", row.ID, err)
		}
		if row.Turn {
			cost += int64(cap(row.Body))
		}
	}
	s.recent = slices.Clone(s.recent[max(0, len(s.recent)-baseCandidates):])
	var orphans []*part
	for _, row := range slices.Backward(rows.Parts) {
		p := parts[row.ID]
		if p.refs > 0 {
			cost += p.cost()
			continue
		}
		orphans = append(orphans, p)
		if p.base != nil {
			p.base.refs--
		}
	}
	s.charge(cost)
	s.forget(orphans)
	return trace, nil
}

func (t *loadedTrace) add(row CallRow, r, shared *record, ended bool) error {
	if row.Turn {
		turn, err := decodeTurn(row.About)
		if err != nil {
			return err
		}
		if turn.SharedAt < 0 || turn.SharedAt > len(row.Body) {
			return errDamaged
		}
		turn.request, turn.response, turn.row = r, row.Body, row.ID
		turn.shared, turn.sharedAt = shared, turn.SharedAt
		if row.Delivered != nil {
			turn.delivered.Store(delivery(*row.Delivered))
		}
		turn.Turn.Index = len(t.turns)
		t.turns = append(t.turns, turn)
		return nil
	}
	f, err := decodeFailed(row.About)
	if err != nil {
		return err
	}
	f.request, f.Received, f.row = r, row.Body, row.ID
	if ended {
		t.failed = append(t.failed, f)
	} else {
		t.started = append(t.started, f)
	}
	return nil
}

func (s *store) loadParts(rows []PartRow) (map[uint32]*part, error) {
	parts := make(map[uint32]*part, len(rows))
	for _, row := range rows {
		base := parts[row.Base]
		whole := 0
		if base != nil {
			whole = base.length
			base.refs++
		}
		if row.Base != 0 && base == nil || min(row.Prefix, row.Suffix) < 0 || max(row.Prefix, row.Suffix) > whole {
			return nil, fmt.Errorf("part %d: %w", row.ID, errDamaged)
		}
		parts[row.ID] = &part{
			base: base, prefix: row.Prefix, suffix: row.Suffix, middle: row.Middle,
			length: row.Prefix + len(row.Middle) + row.Suffix, row: row.ID,
		}
		s.lastRow = max(s.lastRow, row.ID)
	}
	return parts, nil
}
